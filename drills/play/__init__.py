"""How a drill is played: a server that holds it, clients, a prompt."""
