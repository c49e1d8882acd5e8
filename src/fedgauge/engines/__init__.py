"""How contributions travel from clients to the sum."""
