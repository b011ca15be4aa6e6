"""Checks of the record: the trail of acts, verification, the doctor."""
