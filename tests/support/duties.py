"""What a member of a secure sum is asked for."""


class Giving:
    """Duties that give fixed values and write down what they are asked."""

    def __init__(self, values):
        self.values = values
        self.asked = 0
        self.agreed = []

    def contribution(self, sharers):
        del sharers
        self.asked += 1
        return self.values

    def agree(self, survivors):
        self.agreed.append(survivors)
