"""Has nodes say how much bandwidth they have to give, and knows where they are."""
