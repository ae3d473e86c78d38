"""How commands show things: tables, figures, times and progress."""
