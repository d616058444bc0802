"""Who acts next: the inbox, the loop that runs turns and steps, prompt assembly, and the app context."""
