"""A fabric that stands still: time goes on as far as it is told to, and its workload is repeated for ever."""
