"""What every learner, oracle, task and world must do, whoever wrote it: call these from tests of your own.

    from surefoot.testing import learner_suite, oracle_suite, task_suite, world_suite

    def test_my_method() -> None:
        world = learner_suite.EpisodeSource(task, steps=60, length=400)
        learner_suite.check(lambda: sf.learner(policies, method=MY_METHOD, seed=5), world)

    def test_my_task() -> None:
        task_suite.check(lambda: MyTask(0.3), [policy])
        world_suite.check(lambda: MyTask(0.3).world(4))

All checks are plain functions that raise AssertionError with a sentence; no test framework is needed. Checks with
chance in them fail a correct implementation with probability at most 1e-6 each, and with equal seeds always alike.
"""
