"""Read models: values made of events and state for people and the API. They decide nothing."""
