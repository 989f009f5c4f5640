"""Reading the printed formulas of the book and evaluating them: see `book.witness`."""
