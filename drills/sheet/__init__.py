"""What a drill is on paper: its file, the places that are drawn, the truth, answers and their score."""
