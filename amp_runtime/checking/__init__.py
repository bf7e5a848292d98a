"""What a user gives, checked against types and limits, and refused in the user's words."""
