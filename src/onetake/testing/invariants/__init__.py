"""What must hold, a module per kind of subject: each function judges a subject for one case."""
