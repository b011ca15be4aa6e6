"""Reads runs that other programs recorded, in four formats, into one neutral value."""
