"""What is done about the delay between a row's forward and its gradient, at one node.

    forward        which weights it computes with
    backward       which weights it is differentiated with: `backward_weights`
    accumulation   what becomes of a contribution of known staleness
    step           what the learning rate is multiplied by

A worker imports of it what one of its nodes asks for.
"""
