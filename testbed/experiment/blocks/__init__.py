"""The blocks of the experiment file as typed models, and the names that may stand in them."""
