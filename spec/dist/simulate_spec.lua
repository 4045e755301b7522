--- simulate_spec: jobs of simulated ranks: errors that name who is to blame, lost ranks, regroup, and that a seed repeats a run.
local ag = require "argand"
local cases = require "support.cases"
local core = require "argand.core"
local dist = require "argand.dist"
local launcher = require "support.launcher"
local live_memory = require "support.live_memory"
local terminal = require "support.terminal"

local SIGINT = 2

local function fails(code, pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error " .. code)
  assert(type(err) == "table" and err.code == code, ("expected code %s, got %s"):format(code, tostring(err)))
  assert(tostring(err):find(pattern), ("expected '%s' in: %s"):format(pattern, tostring(err)))
  return err
end

-- A small training run: gradients are averaged, so all ranks end with the same weights.
local function train(rank, steps)
  local rng = dist.rng {seed = 3}
  local w = dist.broadcast(ag.rand({4}, {generator = rng.own}))
  for _ = 1, steps do
    local leaf = w:detach()
    leaf.requires_grad = true
    local x = ag.rand({4}, {generator = rng.own})
    ag.no_grad(function() dist.barrier() end);
    ((leaf * x):sum() - rank):square():backward()
    w = leaf:detach() - dist.all_reduce(leaf.grad, {op = "mean"}) * 0.1
  end
  return w
end

setup(function() dist.init() end)
teardown(function() dist.close() end)

describe("a simulated job", function()
  it("ends with the same bits on all ranks, and in every run of a seed", function()
    local function run(seed)
      return dist.simulate {n = 3, seed = seed}(function(rank) return train(rank, 4):tolist() end):check()
    end
    local first, again, other = run(1), run(1), run(2)
    assert.same(first[0].results, first[2].results)
    assert.same(first[1].results, again[1].results)
    assert.equal(first.seconds, again.seconds)
    assert.equal(first.segments, again.segments)
    assert.is_true(first.seconds > 0 and first.segments > 0 and first.calls > 0)
    assert.is_true(other.seconds ~= first.seconds)
  end)

  it("runs many seeds, and names the one that fails", function()
    local report = dist.simulate {n = 3, seeds = 20}(function(rank) return dist.all_reduce(rank) end)
    assert.equal(20, report.seeds)
    assert.is_nil(report.failing_seed)
    local runs = 0
    report = dist.simulate {n = 2, seed = 5, seeds = 20}(function(rank)
      if rank == 0 then runs = runs + 1 end
      dist.barrier()
      assert(runs < 4, "the fourth run")
    end)
    assert.equal(8, report.failing_seed)
    assert.equal(4, report.seeds)
    local ok, message = pcall(report.check, report)
    assert.is_false(ok)
    assert.truthy(tostring(message):find "^seed 8, rank [01]: .*the fourth run")
  end)

  it("keeps apart what belongs to each rank: generators, recording, errors", function()
    local before = ag.random_state()
    dist.simulate {n = 3}(function(rank)
      ag.manual_seed(rank)
      local drawn = {}
      for i = 1, 3 do
        drawn[i] = ag.rand(1):item()
        dist.barrier()
      end
      ag.manual_seed(rank)
      for i = 1, 3 do assert.equal(drawn[i], ag.rand(1):item()) end
      ag.no_grad(function()
        if rank == 1 then dist.barrier() else ag.enable_grad(dist.barrier) end
        assert.is_false(ag.is_grad_enabled())
      end)
      assert.is_true(ag.is_grad_enabled())
      local co = coroutine.wrap(function() coroutine.yield(dist.all_reduce(1)) end)
      assert.equal(3, co())
    end):check()
    assert.same(before, ag.random_state())
  end)

  it("can run inside another one, and inside a scope", function()
    local report = dist.simulate {n = 2}(function(rank)
      local inner = dist.simulate {n = 3}(function() return dist.all_reduce(1), dist.size() end):check()
      dist.barrier()
      return inner[2].results[1] + rank, dist.size()
    end):check()
    assert.same({4, 2}, report[1].results)
    local kept = ag.scope(function()
      return dist.simulate {n = 2}(function() return dist.all_reduce(ag.ones(2)) end):check()[0].results
    end)
    assert.same({2, 2}, kept[1]:tolist())
  end)

  it("keeps the scopes of ranks apart", function()
    dist.simulate {n = 3}(function(rank)
      local freed
      local kept = ag.scope(function()
        freed = ag.ones(2)
        dist.barrier()
        local inner = ag.scope(function()
          local sum = dist.all_reduce(ag.ones(2) * rank)
          dist.barrier()
          return sum
        end)
        assert.same({3, 3}, inner:tolist())
        dist.barrier()
        return inner + freed
      end)
      local free = ag.ones(2)
      dist.barrier()
      assert.same({4, 4}, kept:tolist())
      assert.same({1, 1}, free:tolist())
      fails("state", "freed", freed.tolist, freed)
    end):check()
  end)

  it("checks its options", function()
    local check = cases.begin()
    local nothing = function() end
    for i, case in ipairs {
      {"option", "did you mean 'seed'", {sed = 1}}, {"value", "n: expected 1 to 256", {n = 0}}, {"value", "n: ", {n = 2.5}},
      {"value", "faults: expected a rank, 0 to 1, got 2", {n = 2, faults = {{rank = 2}}}},
      {"value", "faults: expected a rank", {n = 2, faults = {{}}}}, {"value", "at: ", {n = 2, faults = {{rank = 1, at = 0}}}},
      {"value", "kind: ", {n = 2, faults = {{rank = 1, kind = "slow"}}}}, {"option", "unknown option", {faults = {{rnk = 1}}}},
      {"value", "seeds", {seeds = 0}},
    } do
      check(i .. " " .. case[2], fails, case[1], case[2], function() dist.simulate(case[3])(nothing) end)
    end
    check("fn", fails, "argument", "fn: expected a function, got nil", function() dist.simulate {}() end)
    check.done()
  end)
end)

describe("the simulator of calls", function()
  it("gives everything back when memory runs out", function()
    local calls, input = {}, ag.ones({7}, {dtype = "f16"})
    for rank = 1, 3 do calls[rank] = {kind = "all_reduce", op = "mean", input = input, algorithm = "ring"} end
    local function simulate() return core.dist.simulate({seed = 1, sequence = 1}, calls) end
    simulate()
    local before, failures = live_memory.now(), 0
    for n = 1, 1000 do
      ag.memory_fail_after(n)
      local ok, outcomes = pcall(simulate)
      ag.memory_fail_after(0)
      local err = not ok and outcomes or outcomes[1].error or outcomes[2].error or outcomes[3].error
      if not err then break end
      failures = failures + 1
      assert.truthy(err.code == "memory" or err.code == "mismatch", tostring(err))
    end
    assert.is_true(failures > 30 and failures < 1000, "failed allocations: " .. failures)
    live_memory.assert_same(before)
  end)

  it("is ended by Ctrl-C, whatever the ranks are at", function()
    local scratch = launcher.new()
    local path = scratch:write_file("endless.lua", [[
      local dist = require "argand.dist"
      local function say(...) print(...) io.stdout:flush() end
      local endless = {
        function(rank)
          if rank == 0 then say "runs" end
          while true do dist.all_reduce(1) end
        end,
        function(rank)
          dist.barrier()
          if rank == 1 then say "runs" end
          while rank == 1 do end
          dist.barrier()
        end,
      }
      for _, fn in ipairs(endless) do
        local ok, err = pcall(function() dist.simulate {n = 3}(fn) end)
        say(ok, err.code)
      end
    ]])
    local child = scratch:spawn {terminal.this_command(), path}
    for i = 1, 2 do
      child:read(function() return select(2, child.out:gsub("runs\n", "")) == i end)
      core.process.kill(child.pid, SIGINT)
    end
    assert.equal(0, child:finish(), child.err)
    assert.equal(("runs\nfalse\tinterrupted\n"):rep(2), child.out)
    assert.is_true(scratch:remove())
  end)
end)

describe("calls that differ", function()
  local different = {
    {"kind", function(rank) if rank == 1 then dist.barrier() else dist.all_reduce(ag.zeros(2)) end end, "barrier"},
    {"shape", function(rank) dist.all_reduce(ag.zeros(2 + rank)) end, "f32%[3%]"},
    {"dtype", function(rank) dist.all_reduce(ag.zeros({2}, {dtype = rank == 1 and "f64" or "f32"})) end, "f64%[2%]"},
    {"op", function(rank) dist.all_reduce(ag.zeros(2), {op = rank == 1 and "max" or "sum"}) end, "all_reduce%(max%)"},
    {"root", function(rank) dist.broadcast(ag.zeros(2), {root = rank == 1 and 1 or 0}) end, "root 1"},
    {"algorithm", function(rank) dist.all_reduce(ag.zeros(2), {algorithm = rank == 1 and "ring" or "direct"}) end, "algorithms"},
    {"keys", function(rank) dist.all_reduce(rank == 1 and {a = ag.zeros(1), b = ag.zeros(2)} or {b = ag.zeros(1), a = ag.zeros(2)}) end, "f32%[1%]"},
    {"groups", function(rank) dist.group(rank == 1 and {0, 1} or {0, 2}) end, "group{0, 1}"},
    {"a group and a call", function(rank) if rank == 1 then dist.barrier() else dist.group {0} end end, "barrier"},
  }
  it("are one error on all ranks, which names both calls", function()
    local check = cases.begin()
    for _, case in ipairs(different) do
      check(case[1], function()
        local messages = {}
        dist.simulate {n = 3}(function(rank)
          local err = fails("mismatch", case[3], case[2], rank)
          assert.truthy(err.message:find "rank 0 called")
          assert.truthy(err.message:find "rank 1 called")
          assert.same({0, 1}, err.culprits)
          assert.equal(rank, err.rank)
          assert.equal(1, select(2, tostring(err):gsub("\n", "\n")) + 1)
          messages[rank] = err.got
          -- The world has ended: the next call gives the same.
          local later = fails("mismatch", "rank 0 called", dist.barrier)
          assert.equal(err.got, later.got)
          assert.is_true(dist.world():has_ended())
        end):check()
        assert.equal(messages[0], messages[1])
        assert.equal(messages[0], messages[2])
      end)
    end
    check.done()
  end)

  it("that one rank cannot make are told to the others, with the reason", function()
    dist.simulate {n = 3}(function(rank)
      local t = ag.zeros({2}, {dtype = rank == 2 and "bool" or "f32"})
      if rank == 2 then
        fails("dtype", "and", dist.all_reduce, t)
      else
        local err = fails("mismatch", "rank 2 could not make its call: .*bool", dist.all_reduce, t)
        assert.same({2}, err.culprits)
      end
    end):check()
  end)
end)

describe("ranks that do not come", function()
  it("have left, have failed, or gave up the job", function()
    local check = cases.begin()
    local reasons = {
      {"rank 1 has left", function() end},
      {"rank 1 failed: .*no data", function() error("no data") end},
      {"rank 1 failed: .*expected 1 to 1", function() ag.zeros(2):sum(2) end},
      {"rank 1 failed: enough", function() dist.abort("enough") end},
      {"rank 1 has left", function() dist.close() end},
    }
    for _, case in ipairs(reasons) do
      check(case[1], function()
        local report = dist.simulate {n = 3}(function(rank)
          if rank == 1 then return case[2]() end
          local err = fails("peer", case[1], dist.all_reduce, ag.ones(3))
          assert.same({1}, err.culprits)
          assert.equal(rank, err.rank)
        end)
        for _, rank in ipairs {0, 2} do assert.equal("ended", report[rank].state, tostring(report)) end
      end)
    end
    check.done()
  end)

  it("are waited for until the timeout", function()
    local report = dist.simulate {n = 4, timeout = 7}(function(rank)
      local pair = dist.group {0, 1}
      if rank == 0 then -- waits for 1 in a group, while 1 waits for all
        fails("timeout", "within 7 s", pair.barrier, pair)
      else
        local err = fails("timeout", "rank 0 did not come within 7 s", dist.barrier)
        assert.same({0}, err.culprits)
      end
    end):check()
    assert.is_true(report.seconds >= 7)
    dist.simulate {n = 2}(function(rank)
      local err = fails("timeout", "did not come", dist.send, ag.ones(1), 1 - rank)
      assert.same({0, 1}, err.culprits)
    end):check()
  end)

  it("make is_done true, and wait an error", function()
    dist.simulate {n = 3}(function(rank)
      if rank == 1 then return end
      local h = dist.all_reduce(ag.ones(2), {async = true})
      while not h:is_done() do assert.is_table(h) end
      fails("peer", "rank 1 has left", h.wait, h)
      fails("peer", "rank 1 has left", h.wait, h)
    end):check()
  end)
end)

describe("lost ranks", function()
  it("are named by all others, whatever the seed, and inputs are intact", function()
    for _, kind in ipairs {"dead", "silent"} do
      for at = 1, 3 do
        local report = dist.simulate {n = 4, seeds = 25, faults = {{rank = 2, at = at, kind = kind}}}(function(rank)
          local input = ag.arange(0, 50) + rank
          local seen = 0
          local ok, err = pcall(function()
            for _ = 1, 5 do
              local r = dist.all_reduce(input)
              assert(r:equal(ag.arange(0, 50) * 4 + 6), "wrong sum")
              seen = seen + 1
            end
          end)
          assert(rank ~= 2, "a lost rank goes on")
          assert(not ok and type(err) == "table" and err.code == "peer", tostring(err))
          assert.same({2}, err.culprits)
          assert(seen == at - 1 or seen == at, "calls before the loss: " .. seen)
          assert(input:equal(ag.arange(0, 50) + rank), "the input has changed")
        end)
        report:check()
        assert.equal(kind, report[2].state)
        assert.equal(25, report.seeds)
        if kind == "silent" then assert.is_true(report.seconds >= 25 * 5) end
      end
    end
  end)

  it("can be gone on without", function()
    dist.simulate {n = 4, seeds = 10, faults = {{rank = 1, at = 2}, {rank = 3, at = 6}}}(function()
      local epoch, group = 0, dist.group {0, 1, 2, 3}
      for _ = 1, 4 do
        local ok, err = pcall(function()
          for _ = 1, 3 do assert(dist.all_reduce(1) == dist.size(), "wrong size") end
        end)
        if not ok then
          assert(err.code == "peer", tostring(err))
          local world = dist.regroup {min_size = 2}
          epoch = epoch + 1
          assert.equal(dist.world(), world)
          assert.equal(epoch, dist.info().epoch)
          assert.is_true(dist.rank() < dist.size())
          fails("state", "closed", group.barrier, group)
        end
      end
      assert.equal(2, epoch)
      assert.same({0, 1}, dist.all_gather(dist.rank()))
    end):check()
  end)

  it("may be too many to go on", function()
    dist.simulate {n = 3, seeds = 10, faults = {{rank = 1, at = 1}}}(function()
      fails("peer", "rank 1", function()
        dist.barrier() -- it may be through before the loss
        dist.barrier()
      end)
      fails("peer", "expected 3 ranks, got 2", dist.regroup, {min_size = 3})
    end):check()
  end)

  it("do not hold on when they catch all errors", function()
    local tries = 0
    local report = dist.simulate {n = 2, faults = {{rank = 1, at = 1}}}(function(rank)
      while rank == 1 and tries < 5000 do
        tries = tries + 1
        pcall(dist.barrier)
      end
      fails("peer", "rank 1", function()
        dist.barrier()
        dist.barrier()
      end)
    end)
    report:check()
    assert.equal(5000, tries)
    assert.equal("dead", report[1].state)
  end)
end)
