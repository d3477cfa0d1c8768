"""The comparison of speculation off and on: traffic, clients, servers."""
