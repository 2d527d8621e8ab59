"""What tests share: fabrics, fakes, models, checks."""
