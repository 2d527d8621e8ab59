"""Along the dimensions of grids and cubes, several parts of the vector at a time."""
