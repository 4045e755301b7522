--- misuse: one of three ranks makes another call than the others, or one that is refused: real processes over both transports.
-- All ranks get a readable error that names the culprits; in shared memory the group goes on; right calls pay nothing for it.
local cases = require "support.cases"
local dist = require "argand.dist"
local job = require "support.job"

local worker = arg[0]:match "^(.*)/[^/]*$" .. "/dist_worker_misuse.lua"

-- What ranks 0 and 2 are told, and what rank 1 did: patterns. `own`: the code with which rank 1's own call is refused.
local list = {
  {"op", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called all_reduce%(max%) of f32%[6%]"},
  {"dtype", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called all_reduce%(sum%) of f64%[6%]"},
  {"shape", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called all_reduce%(sum%) of f32%[2, 3%]"},
  {"count", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called all_reduce%(sum%) of f32%[7%]"},
  {"big_count", "rank %d called all_reduce%(sum%) of f32%[1048576%]", "rank 1 called all_reduce%(sum%) of f32%[1048577%]"},
  {"root", "rank %d called broadcast of f32%[6%], root 0", "rank 1 called broadcast of f32%[6%], root 1", is_told_later = true},
  {"kind", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called all_gather of f32%[6%]"},
  {"algorithm", "rank %d called all_reduce%(sum%) of f32%[6%]", "%(with different algorithms%)"},
  {"order", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called broadcast of f32%[6%]"},
  {"skipped", "rank %d called all_reduce%(sum%) of f32%[6%]", "rank 1 called barrier"},
  {"int_mean", "rank 1 refused", "mean: expected a float dtype, got i32; use sum, or cast", own = "dtype"},
  {"late_refusal", "rank 1 refused", "mean: expected a float dtype, got i32", own = "dtype", is_stopped = true},
  {"reference", "rank 1 refused", "device reference, which cannot take part", own = "device"},
  {"out_shape", "rank 1 refused", "out: expected f32%[6%], got f32%[5%]", own = "shape"},
  -- Nothing can be made of these, so the others learn of it from rank 1's next call, or from its end.
  {"no_op", "rank 1", "rank 1", own = "value", is_untold = true},
  {"no_root", "rank 1", "rank 1", own = "value", is_untold = true, is_told_later = true},
}

local BOUND_S = 4

local function run_case(transport, case)
  local ranks = job.start {size = 3, script = worker, args = {case[1]}, transport = transport}
  if case.is_stopped then -- ranks 0 and 2, when rank 1 makes its call
    job.wait(function() return ranks[0]:first "ready" and ranks[1]:first "ready" and ranks[2]:first "ready" end, 10)
    for i = 0, 2, 2 do ranks[i]:kill(job.SIGSTOP) end
    job.sleep(1.6)
    for i = 0, 2, 2 do ranks[i]:kill(job.SIGCONT) end
  end
  local problems = job.finish(ranks, 20)
  return ranks, problems
end

local function check_case(transport, case, ranks)
  local first
  for i = 0, 2 do
    local rank = ranks[i]
    local err, ready = rank:first "error", rank:first "ready"
    -- Over a network a root hears nothing, and who has heard from one is through: they are told in their next call.
    if not err and case.is_told_later and transport == "tcp" and rank:first "passed" then err = rank:first "ended" end
    assert(ready, "did not join: " .. rank:text())
    assert.equal(transport, ready.transport)
    assert(err, "no error: " .. rank:text())
    assert(err.at - ready.at < BOUND_S, ("after %.1f s: %s"):format(err.at - ready.at, rank:text()))
    if case.own and i == 1 then
      assert(err.code == case.own, rank:text())
    else
      assert(err.code == "mismatch", rank:text())
      assert(err.message:find(case[2]) and err.message:find(case[3]), rank:text())
      local culprits = case.own and not case.is_untold and "^1$" or "1"
      assert(err.culprits:find(culprits), rank:text())
      -- Over a network ranks compare two by two, and several find a difference at once.
      local text = err.message:gsub("^[%w_]+: ", "")
      first = first or text
      if transport == "shm" then assert(text == first, ("'%s' and '%s'"):format(first, text)) end
      assert(#err.culprits <= 3, "nobody else is to blame: " .. rank:text())
    end
    if case.is_untold then
      assert(not rank:first "after" or rank:first("after").value ~= "nil", rank:text())
    elseif transport == "shm" then
      local after = rank:first "after"
      assert(after and after.value == "6", "the group does not go on: " .. rank:text())
      assert(err.has_ended == "false", rank:text())
    else
      local ended = rank:first "ended"
      assert(ended, "the group goes on: " .. rank:text())
      assert(ended.code == "mismatch", rank:text())
    end
  end
end

describe("another call on one rank", function()
  for _, transport in ipairs {"shm", "tcp"} do
    it("is the same error on all ranks over " .. transport, function()
      if not dist.is_available() then return pending "built without ZeroMQ" end
      local check, tasks = cases.begin(), {}
      for _, case in ipairs(list) do
        tasks[#tasks + 1] = {case = case, run = function(task) task.ranks, task.problems = run_case(transport, case) end}
      end
      job.together(tasks, 5)
      for _, task in ipairs(tasks) do
        check(task.case[1], function()
          if task.error then error(task.error, 0) end
          assert.equal("", table.concat(task.problems, "\n"))
          local is_ok, err = pcall(check_case, transport, task.case, task.ranks)
          if is_ok then return end
          local texts = {}
          for i = 0, 2 do texts[i + 1] = task.ranks[i]:text() end
          error(tostring(err) .. "\n    all: " .. table.concat(texts, "\n    "), 0)
        end)
      end
      check.done()
    end)
  end

  -- Rank 2 is not concerned.
  it("of a message is the other side's error, and the group goes on", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local check = cases.begin()
    for _, transport in ipairs {"shm", "tcp"} do
      for _, name in ipairs {"refused_send", "refused_receive"} do
        local ranks, problems
        job.alone(function() ranks, problems = run_case(transport, {name}) end)
        check(name .. " over " .. transport, function()
          assert.equal("", table.concat(problems, "\n"))
          local told, own = ranks[0]:first "error", ranks[1]:first "error"
          assert(own and own.code == "device", ranks[1]:text())
          assert(told and told.code == "mismatch" and told.culprits == "1", ranks[0]:text())
          assert(told.message:find "rank 1 refused send/receive of f32%[2097152%]: .*device reference", ranks[0]:text())
          assert(told.at - ranks[0]:first("ready").at < BOUND_S, ranks[0]:text())
          assert(ranks[2]:first "passed", ranks[2]:text())
          for i = 0, 2 do
            local after = ranks[i]:first "after"
            assert(after and after.value == "6", "the group does not go on: " .. ranks[i]:text())
          end
        end)
      end
    end
    check.done()
  end)

  -- Over a network n ranks exchange 2 (n - 1) parts each, 2^20 elements in 3 segments a part; in shared memory they meet once
  -- for what fits into a slot.
  it("costs right calls no message and no round", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    for transport, wanted in pairs {shm = {small = 1, middle = 1}, tcp = {small = 4, middle = 4, big = 12}} do
      local ranks, problems
      job.alone(function() ranks, problems = run_case(transport, {"cost"}) end)
      assert.equal("", table.concat(problems, "\n"))
      for i = 0, 2 do
        local cost = ranks[i]:first "cost"
        print(("  %s, rank %d: %s of all_reduce: 16 elements %s, 4096 elements %s, 2^20 elements %s"):format(transport, i,
          transport == "shm" and "rounds" or "messages", cost.small, cost.middle, cost.big))
        assert.equal(ranks[0]:first("cost").big, cost.big)
        for name, number in pairs(wanted) do assert.equal(number, tonumber(cost[name]), transport .. ", " .. name) end
      end
    end
  end)

  it("leaves nothing behind", function()
    local left = job.leftovers()
    job.remove_folder()
    assert.equal("", table.concat(left, "\n"))
  end)
end)
