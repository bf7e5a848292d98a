"""Peer 1 of test_transport: answers each forward message of peer 0 some times.

python echo_peer.py SOCKET_DIRECTORY ANSWERS HIGH_WATER_MARK
"""

import sys

from amp_runtime.sockets.transport import Endpoint, Lane, SocketDirectory


def main(path: str, answers: int, high_water_mark: int) -> None:
    with Endpoint(SocketDirectory.open(path), 1, high_water_mark=high_water_mark) as endpoint:
        endpoint.connect(0, lanes=[Lane.BACKWARD])
        sys.stdout.write("bound\n")
        sys.stdout.flush()
        while True:  # until killed
            endpoint.poll(10.0)
            while (frames := endpoint.receive(Lane.FORWARD)) is not None:
                for copy in range(answers):
                    endpoint.send(0, Lane.BACKWARD, [*frames, b"%d" % copy])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
