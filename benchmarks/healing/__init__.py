"""How well a service heals itself: the sample shop's bugs, from the request that fails to the
verified commit."""
