"""Tests of ``fedprivacy.page.jobs``: children with limits, and what remains of them."""

import asyncio
import json
import os
import signal

import pytest

from fedprivacy.page import jobs as module
from fedprivacy.page.forms import EXAMPLE
from fedprivacy.page.jobs import SPARES, Busy, Jobs
from tests.page.test_auditing import ANSWERS, OPACUS

SLOW = {**EXAMPLE, "sampling": "truncated", "population": "1" + "0" * 15, "delta": "1e-300"}
"""A plan whose answer takes longer than a test waits."""


WRONG = {**EXAMPLE, "rounds": "0"}


def request(task, fields, *files):
    listed = [{"name": name, "size": len(content)} for name, content in files]
    return json.dumps({"task": task, "fields": fields, "files": listed}).encode()


async def asked(job, task, fields, *files):
    await job.send(request(task, fields, *files))
    for _, content in files:
        await job.send(content)
    return [json.loads(line) async for line in job.messages()]


def ran(use, **limits):
    """Return what a coroutine function makes of the children of a new server."""

    async def whole():
        jobs = Jobs(**limits)
        try:
            return await use(jobs)
        finally:
            jobs.close()
            assert not jobs.folder.exists()

    return asyncio.run(whole())


def test_a_child_answers_and_leaves_no_file():
    async def use(jobs):
        async with jobs.job() as job:
            file = (OPACUS.name, OPACUS.read_bytes())
            found = await asked(job, "audit", ANSWERS, file)
        assert list(jobs.folder.iterdir()) == []
        return found

    found = ran(use)
    assert "HOLDS" in str(found) and found[-1] == {"done": True}


def test_children_wait_for_the_next_requests_and_end_with_the_server():
    async def use(jobs):
        async with jobs.job() as job:
            await asked(job, "plan", WRONG)
        while len(jobs._spares) < SPARES:
            await asyncio.sleep(0.01)
        waiting = list(jobs._spares)
        os.kill(waiting[0]._process.pid, signal.SIGKILL)
        waiting[0]._process.join()
        async with jobs.job() as job:
            assert job is waiting[1]
            found = await asked(job, "plan", WRONG)
        return waiting, found

    waiting, found = ran(use)
    assert found[-1] == {"done": True} and not any(one.alive for one in waiting)


def test_a_child_is_stopped_by_the_clock():
    async def use(jobs):
        async with jobs.job() as job:
            return await asked(job, "plan", SLOW)

    assert "stopped after" in ran(use, seconds=0.05)[-1]["failed"]


def test_a_child_that_dies_is_told():
    async def use(jobs):
        async with jobs.job() as job:
            os.kill(job._process.pid, signal.SIGKILL)
            with pytest.raises(OSError):
                for _ in range(100):
                    await job.send(b"x" * 100_000)
            return [json.loads(line) async for line in job.messages()]

    assert "too much memory or time" in ran(use)[-1]["failed"]


def test_a_file_that_stops_halfway_is_gone_with_its_child():
    async def use(jobs):
        async with jobs.job() as job:
            await job.send(request("audit", {}, ("a.json", b"x" * 1000)))
            await job.send(b"x" * 500)
            while not list(jobs.folder.glob("*/a.json")):
                await asyncio.sleep(0.01)
        return list(jobs.folder.iterdir())

    assert ran(use) == []


def test_a_child_ends_with_its_server_and_takes_its_files_along(tmp_path):
    async def use(jobs):
        async with jobs.job() as job:
            await job.send(request("audit", {}, ("a.json", b"x" * 1000)))
            while not list(jobs.folder.glob("*/a.json")):
                await asyncio.sleep(0.01)
            # As when the server is killed: the pipe ends, and nobody clears up.
            job._pipe.close()
            while jobs.folder.exists():
                await asyncio.sleep(0.01)

    ran(use)


def test_too_many_requests_are_refused(monkeypatch):
    monkeypatch.setattr(module, "WAITING", 0)

    async def use(jobs):
        with pytest.raises(Busy):
            async with jobs.job():
                pass

    ran(use)


def test_an_error_that_is_no_refusal_is_a_sentence():
    def broken(fields, paths):
        raise KeyError("x")
        yield

    (found,) = module._answer(broken, {}, [])
    assert "defect" in found["failed"] and found["done"]


def test_the_memory_of_a_child_is_limited():
    async def use(jobs):
        async with jobs.job() as job:
            return await asked(job, "plan", EXAMPLE)

    # Nothing can be computed in so little memory.
    assert "memory" in ran(use, megabytes=1)[-1]["failed"]
