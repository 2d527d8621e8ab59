"""What writes tables of pages in docs/ from the code; tests say when a page is out of date."""
