"""A live group of three nodes through kills, stops, network cuts and a disk that forgets."""
