"""The store on one SQLite file: WAL, every commit synced to disk before it is acknowledged."""
