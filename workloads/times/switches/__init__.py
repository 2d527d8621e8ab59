"""Times of what switches do: in-network aggregation, multicast."""
