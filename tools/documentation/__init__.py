"""Makes the pages of the documentation that come from code, and fits the others into the site."""
