"""What all attacks share: a pool to attack, people who attack it, and people who only want to work."""
