"""Read models: values built from events and state, for people and the API. They decide nothing."""
