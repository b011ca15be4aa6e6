"""Whether the record is whole: the trail of acts, verification, the doctor."""
