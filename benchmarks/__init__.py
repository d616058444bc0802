"""What onetake costs, as ratios against a baseline that is measured in the same run: `make bench`."""
