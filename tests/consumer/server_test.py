#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many clients at once on the server with the library inside (server.cc): each gets what the command
writes for its prompt, whatever the others do: read slowly, go away, send nonsense.

usage: server_test.py SERVER MAINARCH CHECKPOINT
"""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SERVER, MAINARCH, CHECKPOINT = sys.argv[1:4]
PLACES = 4
PROMPTS = ["In the beginning", "And God said, Let there be", "The Lord is", "He that hath", "Behold",
           "And it came to pass", "Thou shalt not", "Blessed are the"]


def expected(prompt, max_tokens=40, temperature=0.0, seed=0):
    """What the command writes, with the same sampling."""
    words = [MAINARCH, "generate", "--model", CHECKPOINT, "--max-tokens", max_tokens, "--temperature",
             temperature, "--seed", seed, "--top-k", 0, "--top-p", 1, "--min-p", 0,
             "--repetition-penalty", 1, "--raw", "--no-statistics", prompt]
    return subprocess.run([str(w) for w in words], check=True, capture_output=True).stdout[:-1]


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(120)
        self.socket.connect(path)

    def ask(self, prompt, max_tokens=40, temperature=0.0, seed=0):
        self.send(f"{max_tokens} {temperature} {seed}\n{prompt}".encode())
        self.socket.shutdown(socket.SHUT_WR)
        return self

    def send(self, data):
        self.socket.sendall(data)

    def rest(self, pause=0.0, piece=4096):
        text = b""
        while data := self.socket.recv(piece):
            text += data
            time.sleep(pause)
        self.socket.close()
        return text


class ServerTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="mainarch-server-")
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, "socket")
        self.server = subprocess.Popen([SERVER, CHECKPOINT, self.path, str(PLACES)],
                                       stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.kill)
        self.assertEqual(self.server.stdout.readline(), "ready\n")

    def kill(self):
        if self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        self.server.stdout.close()

    def client(self):
        return Client(self.path)

    def test_a_prompt_of_more_tokens_than_bytes(self):
        client = self.client()
        client.send(b"5 0 0\n" + b"\xff" * 200)  # each is read as U+FFFD, of three bytes
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.rest()
        self.assertTrue(answer and not answer.startswith(b"error"), answer)

    def end(self):
        """Ends the server as an administrator does; its report."""
        self.server.send_signal(signal.SIGTERM)
        report = self.server.stdout.read()
        self.assertEqual(self.server.wait(60), 0)
        found = re.fullmatch(r"steps (\d+) cancelled (\d+) tokens (\d+) sequences (\d+)\n", report)
        self.assertTrue(found, report)
        return dict(zip(("steps", "cancelled", "tokens", "sequences"), map(int, found.groups())))

    def fds(self):
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def wait_for_fds(self, count):
        for _ in range(600):
            if self.fds() == count:
                return
            time.sleep(0.05)
        self.assertEqual(self.fds(), count)

    def test_more_clients_than_places_get_what_the_command_writes(self):
        requests = [(prompt, 40, 0.0, 0) for prompt in PROMPTS]
        requests += [(PROMPTS[i], 30, 0.8, i + 1) for i in range(3)]
        want = {request: expected(*request) for request in requests}
        idle = self.fds()
        got = {}

        # All are asked before the server looks at the first: it is stopped meanwhile, and what clients send
        # waits in the kernel. Else a busy machine might start each client when the one before has ended.
        self.server.send_signal(signal.SIGSTOP)
        clients = {request: self.client().ask(*request) for request in requests}
        self.server.send_signal(signal.SIGCONT)

        def one(request):
            got[request] = clients[request].rest()

        threads = [threading.Thread(target=one, args=(request,)) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        for request in requests:
            self.assertEqual(got.get(request), want[request], request)
        self.assertEqual(len(set(want.values())), len(want))
        self.wait_for_fds(idle)
        report = self.end()
        self.assertEqual(report["sequences"], 0)
        # They shared steps: far fewer than one after another would have taken.
        self.assertLess(report["steps"], report["tokens"] * 3 // 4)

    def test_slow_client_holds_up_nobody(self):
        slow = self.client().ask(PROMPTS[0], 200)
        began = time.monotonic()
        for prompt in PROMPTS[:3]:
            self.assertEqual(self.client().ask(prompt, 10).rest(), expected(prompt, 10))
        quick = time.monotonic() - began
        text = slow.rest(pause=0.002, piece=16)
        self.assertEqual(text, expected(PROMPTS[0], 200))
        self.assertLess(quick, 60)
        self.assertEqual(self.end()["sequences"], 0)

    def test_request_in_pieces(self):
        client = self.client()
        for byte in f"20 0 0\n{PROMPTS[1]}".encode():
            client.send(bytes([byte]))
        client.socket.shutdown(socket.SHUT_WR)
        self.assertEqual(client.rest(), expected(PROMPTS[1], 20))

    def test_who_goes_away_frees_its_place_and_stops_the_step(self):
        idle = self.fds()
        for _ in range(2 * PLACES):  # each would take 2000 tokens
            client = self.client().ask(PROMPTS[0], 1900, 1.5, 3)
            self.assertTrue(client.socket.recv(1))
            client.socket.close()
        silent = self.client()  # never asks
        silent.send(b"10 0")
        # Gone before there is an answer: a prompt takes longer than a token, and some of these go in the midst of it.
        for after in range(20):
            gone = self.client().ask("word " * 1500)
            time.sleep(0.001 * after)
            gone.socket.close()
        self.assertEqual(self.client().ask(PROMPTS[2], 20).rest(), expected(PROMPTS[2], 20))
        silent.socket.close()
        self.wait_for_fds(idle)
        report = self.end()
        self.assertEqual(report["sequences"], 0)
        self.assertLess(report["tokens"], PLACES * 1900)
        self.assertGreater(report["cancelled"], 0)

    def test_nonsense_is_answered(self):
        for request, answer in [(b"", b"error: the first line must be"),
                                (b"ten 0 0\nx", b"error: the first line must be"),
                                (b"10 0 0", b"error: the first line must be"),
                                (b"0 0 0\nx", b"error: the first line must be"),
                                (b"10 -1 0\nx", b"error: "),
                                (b"10 0 0\n" + b"word " * 13000, b"error: "),
                                (b"10 0 0\n" + b"word " * 5000, b"error: ")]:
            client = self.client()
            try:
                client.send(request)
                client.socket.shutdown(socket.SHUT_WR)
                text = client.rest()
            except (BrokenPipeError, ConnectionResetError):
                continue  # it was refused before it had been sent
            self.assertTrue(text.startswith(answer), (request[:20], text))
            self.assertEqual(text.count(b"\n"), 1)
        self.assertEqual(self.client().ask(PROMPTS[2], 20).rest(), expected(PROMPTS[2], 20))
        self.assertEqual(self.end()["sequences"], 0)

    def test_ends_in_the_middle_of_a_step(self):
        client = self.client().ask(PROMPTS[0], 1900)
        self.assertTrue(client.socket.recv(1))
        self.end()
        client.socket.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
