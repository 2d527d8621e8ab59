"""A cluster's profile: the constants that its logs have told, how well, and what that means for a prediction."""
