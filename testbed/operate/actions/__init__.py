"""The actions of operators, one file a family."""
