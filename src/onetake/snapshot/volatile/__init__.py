"""Values that change from run to run: find them, and propose the smallest rule that covers them."""
