"""The client as state machines without I/O: events and the time go in, actions come out.

`client.Engine` composes them. Nothing here imports socket, time, threading, asyncio or random; every test can therefore script a
cluster's answers, in any order and at any time, and replay it.
"""
