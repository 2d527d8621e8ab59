"""An operator as rules: what he looks at, in which order, and what he concludes."""
