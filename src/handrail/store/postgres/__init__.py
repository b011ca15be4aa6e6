"""The store on PostgreSQL: many engines on one database, every commit synced to disk."""
