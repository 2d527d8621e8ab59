"""Code that several tests share: fabrics, fakes, models, checks."""
