"""How a client and a node talk: the vocabulary, and one pure protocol for each role."""
