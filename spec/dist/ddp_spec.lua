--- ddp: data-parallel training: what can be registered, steps that equal those of one rank, and ranks that disagree. Jobs of one
--- rank run here, others through `argand run`.
local ag = require "argand"
local cases = require "support.cases"
local command = require("support.terminal").this_command()
local dist = require "argand.dist"
local optim = ag.optim

setup(function() dist.init() end)
teardown(function()
  collectgarbage() -- jobs that a failed case left open
  dist.close()
end)

-- A model whose start depends on the seed; with a buffer.
local MODEL = [[
local ag = require "argand"
local dist = require "argand.dist"
local nn, optim = ag.nn, ag.optim
local function model_of(seed)
  ag.manual_seed(seed)
  local model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
  model:register_buffer("seed", ag.tensor({seed}, {dtype = "i64"}))
  return model
end
-- Batch number i, the same wherever it is made.
local function batch_of(i)
  local g = ag.generator(1000 + i)
  return ag.randn({4, 5}, {generator = g}), ag.randn({4, 3}, {generator = g})
end
local function loss_of(model, x, y) return (model(x) - y):square():mean() end
local function values_of(list)
  local values = {}
  for _, t in ipairs(list) do
    for _, v in ipairs(t:reshape({-1}):tolist()) do values[#values + 1] = v end
  end
  return values
end
local function distance(a, b)
  local most = 0
  for i = 1, #a do most = math.max(most, math.abs(a[i] - b[i])) end
  return #a == #b and most or 1/0
end
]]

local model_of, batch_of, loss_of, values_of =
  assert(loadstring(MODEL .. " return model_of, batch_of, loss_of, values_of, distance"))()

-- Runs text as a job of n ranks; returns what it printed, in any order of lines, and the exit code.
local function run(n, text, transport)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(MODEL, "local function say(...) io.stdout:write(table.concat({...}, ' '), '\\n') io.stdout:flush() end\n", text)
  file:close()
  local pipe = assert(io.popen(("timeout 60 %q run -n %d --transport %s --no-prefix %q 2>&1; echo code=$?"):format(command, n,
    transport or "auto", path)))
  local output = pipe:read "*a"
  pipe:close()
  os.remove(path)
  return output, tonumber(output:match "code=(%d+)\n$")
end

-- Every rank says "ok" once and nothing else.
local function assert_ok(n, text, transport)
  local output, code = run(n, text, transport)
  assert.equal(("ok\n"):rep(n) .. "code=0\n", output)
  assert.equal(0, code)
end

-- ---- registration ----

describe("dist.check", function()
  it("names all that cannot be registered at once", function()
    local leaf = ag.ones({2}, {requires_grad = true})
    local list = {leaf, leaf, leaf * 2, ag.ones {2}, ag.ones({2}, {dtype = "i64"}), ag.ones({2}, {dtype = "bool"}), 5,
                  ag.ones({2}, {device = "reference", requires_grad = true})}
    local ok, offenders = dist.check(list)
    assert.is_false(ok)
    local found = {}
    for i, o in ipairs(offenders) do
      found[i] = ("%s %s: %s"):format(o.name, o.code, o.reason)
      assert.is_string(o.hint)
    end
    assert.same({
      "[2] argument: is listed twice, first as '[1]'", "[3] autodiff: is the result of mul, not a leaf",
      "[4] autodiff: does not require gradients", "[5] kind: has dtype i64, not a float dtype",
      "[6] kind: has dtype bool, not a float dtype", "[7] argument: is a number, not a tensor",
      "[8] unsupported: is on device reference, which has no collectives",
    }, found)
    assert.equal(list[3], offenders[2].tensor)
    assert.is_true(dist.check {leaf})
    assert.is_true(dist.check(model_of(1)))
  end)

  it("agrees with register", function()
    local check = cases.begin()
    local odd = {
      twice = {function() local t = ag.ones({1}, {requires_grad = true}) return {t, t} end, "argument"},
      untracked = {function() return {ag.ones {1}} end, "argument"},
      int = {function() return {ag.ones({1}, {dtype = "i32"})} end, "argument"},
      reference = {function() return {ag.ones({1}, {device = "reference", requires_grad = true})} end, "unsupported"},
      none = {function() return {} end, "argument"},
      ["not a list"] = {function() return ag.ones {1} end, "argument"},
    }
    for name, case in pairs(odd) do
      check(name, function()
        local list = case[1]()
        local ok, err = pcall(dist.register, list)
        assert.is_false(ok)
        assert.equal(case[2], err.code)
        assert.equal("register", err.op)
        if type(list) == "table" and #list > 0 then assert.equal(1, #err.offenders) end
        if type(list) == "table" and list[1] then assert.is_nil(dist.registered(list[1])) end
      end)
    end
    check.done()
  end)
end)

describe("dist.register", function()
  it("knows what is registered, and lets go of it", function()
    local model = model_of(1)
    local first = model:parameters()[1]
    assert.is_nil(dist.registered(first))
    assert.is_nil(dist.registered(ag.ones({2}, {dtype = "i8"})))
    local job = dist.register(model)
    local place = dist.registered(first)
    assert.equal(job, place.job)
    assert.equal("1.weight", place.name)
    assert.equal(1, place.position)
    local ok, err = pcall(dist.register, model)
    assert.is_false(ok)
    assert.equal(4, #err.offenders)
    assert.truthy(err.message:find "registered already")
    job:close()
    job:close()
    assert.is_nil(dist.registered(first))
    ok, err = pcall(job.sync, job)
    assert.is_false(ok)
    assert.equal("state", err.code)
    dist.register(model)
    collectgarbage()
    collectgarbage()
    assert.is_nil(dist.registered(first))
  end)

  it("refuses options that make no sense", function()
    local check = cases.begin()
    local list = {ag.ones({1}, {requires_grad = true})}
    for name, case in pairs {
      compress = {{compress = "f64"}, "bf16"}, check_finite = {{check_finite = "maybe"}, "skip"},
      both = {{compress = "f16", shared_result = true}, "shared_result"}, broadcast = {{broadcast = false}, "verify"},
      bucket = {{bucket_mib = 0}, "bucket_mib"}, hash = {{hash_every = 0.5}, "hash_every"}, unknown = {{bucket_mb = 1}, "bucket_mib"},
      group = {{group = 3}, "dist.group"},
    } do
      check(name, function()
        local ok, err = pcall(dist.register, list, case[1])
        assert.is_false(ok)
        assert.truthy(tostring(err):find(case[2], 1, true), tostring(err))
        assert.is_nil(dist.registered(list[1]))
      end)
    end
    check.done()
  end)
end)

-- ---- one rank ----

describe("a job of one rank", function()
  local function train(model, job, opts)
    local opt = optim.Adam(model:parameters(), {lr = 0.05})
    for i = 1, 4 do
      local x, y = batch_of(i)
      local h = opts.checkpoint and ag.checkpoint(function(v) return model[1](v) end, x) or model[1](x)
      local loss = (model[3](model[2](h)) - y):square():mean()
      loss:backward()
      if job then job:step(opt) else opt:step() end
      opt:zero_grad()
    end
    return values_of(model:parameters())
  end

  it("trains as without a job, bit by bit", function()
    local check = cases.begin()
    for name, opts in pairs {
      plain = {}, small = {bucket_mib = 1e-4}, shared = {shared_result = true}, compressed = {compress = "bf16"},
      checked = {check_finite = "error", hash_every = 1}, checkpoint = {checkpoint = true, bucket_mib = 1e-4},
    } do
      check(name, function()
        local expected = train(model_of(3), nil, opts)
        local model = model_of(3)
        local job = dist.register(model, {
          bucket_mib = opts.bucket_mib, shared_result = opts.shared_result, compress = opts.compress, check_finite = opts.check_finite,
          hash_every = opts.hash_every,
        })
        assert.same(expected, train(model, job, opts))
        assert.equal(4, job:stats().steps)
        job:close()
      end)
    end
    check.done()
  end)

  it("takes no step with another model's optimizer, nor after its end", function()
    local model, other = model_of(1), model_of(2)
    local job = dist.register(model)
    loss_of(model, batch_of(1)):backward()
    local ok, err = pcall(job.step, job, optim.SGD(other:parameters(), {lr = 1}))
    assert(not ok and err.code == "argument" and err.message:find "none of the parameters that were registered", tostring(err))
    assert.equal(1, (job:step(optim.SGD(model:parameters(), {lr = 1}))))
    job:close()
    ok, err = pcall(job.sync, job)
    assert(not ok and err.code == "state" and err.message:find "dist.register makes another one", tostring(err))
  end)

  it("adds up under no_sync, starts anew after zero_grad, and passes errors on", function()
    local model, alone = model_of(4), model_of(4)
    local job = dist.register(model)
    local results = {job:no_sync(function(...)
      loss_of(model, batch_of(1)):backward()
      loss_of(model, batch_of(2)):backward()
      return ...
    end, 1, nil, 3)}
    assert.same({1, nil, 3}, results)
    loss_of(model, batch_of(3)):backward()
    job:sync()
    for i = 1, 3 do loss_of(alone, batch_of(i)):backward() end
    for i, p in ipairs(model:parameters()) do assert.same(alone:parameters()[i].grad:tolist(), p.grad:tolist()) end
    job:no_sync(function() loss_of(model, batch_of(4)):backward() end)
    model:zero_grad()
    alone:zero_grad()
    loss_of(model, batch_of(5)):backward()
    job:sync()
    loss_of(alone, batch_of(5)):backward()
    for i, p in ipairs(model:parameters()) do assert.same(alone:parameters()[i].grad:tolist(), p.grad:tolist()) end
    local mine = {}
    local ok, err = pcall(job.no_sync, job, function() error(mine) end)
    assert.is_false(ok)
    assert.equal(mine, err)
    loss_of(model, batch_of(6)):backward()
    local again = pcall(function() loss_of(model, batch_of(6)):backward() end)
    assert.is_false(again)
    job:sync()
    job:close()
  end)

  it("iterates once over a loader, and makes no step without a batch", function()
    local model = model_of(5)
    local job, opt = dist.register(model), optim.SGD(model:parameters(), {lr = 0.1})
    local loader = ag.data.DataLoader and ag.data.DataLoader(ag.data.TensorDataset(ag.randn {7, 5}, ag.randn {7, 3}), {batch_size = 3})
    local i, num = 0, 0
    for x, y in job:each(loader or function()
      i = i + 1
      if i <= 3 then return batch_of(i) end
    end) do
      loss_of(model, x, y):backward()
      assert.equal(1, job:step(opt))
      opt:zero_grad()
      num = num + 1
    end
    assert.equal(3, num)
    assert.equal(3, job.steps)
    local before = values_of(model:parameters())
    assert.same({0, false}, {job:step(opt, {contribute = false})})
    assert.same(before, values_of(model:parameters()))
    local ok, err = pcall(job.each, job, 5)
    assert.is_false(ok)
    assert.equal("argument", err.code)
    job:close()
  end)

  it("skips, or fails, where a gradient is not finite", function()
    for _, what in ipairs {"skip", "error"} do
      local model = model_of(6)
      local job, opt = dist.register(model, {check_finite = what}), optim.SGD(model:parameters(), {lr = 0.1})
      local before = values_of(model:parameters());
      (loss_of(model, batch_of(1)) * (0 / 0)):backward()
      local ok, result = pcall(job.step, job, opt)
      assert.equal(what == "skip", ok)
      local text = ok and job.report or result.message
      assert.truthy(text:find("'1.weight' on rank 0", 1, true) and text:find("and 1 more", 1, true), text)
      assert.same(before, values_of(model:parameters()))
      opt:zero_grad()
      loss_of(model, batch_of(1)):backward()
      assert.equal(1, job:step(opt))
      assert.equal(what == "skip" and 1 or 0, job:stats().skipped)
      job:close()
    end
  end)
end)

-- ---- several ranks ----

local pending_reason = not dist.is_available() and "built without ZeroMQ"
local function on_ranks(name, fn)
  it(name, function()
    if pending_reason then return pending(pending_reason) end
    fn()
  end)
end

describe("a job of several ranks", function()
  -- n batches on n ranks are n batches on one.
  local EQUAL = [[
    local n, rank = dist.size(), dist.rank()
    local model, one = model_of(rank), model_of(0)
    local job = dist.register(model, OPTIONS)
    assert(model.seed:item() == 0, "the buffer is not rank 0's")
    local function forward(x) return CHECKPOINT and ag.checkpoint(function(v) return model(v) end, x) or model(x) end
    local opt, opt_one = optim.SGD(model:parameters(), {lr = 0.1, momentum = 0.9}), optim.SGD(one:parameters(), {lr = 0.1, momentum = 0.9})
    for step = 1, 5 do
      loss_of(forward, batch_of(step * n + rank)):backward()
      assert(job:step(opt) == n)
      opt:zero_grad()
      local total = 0
      for r = 0, n - 1 do total = total + loss_of(one, batch_of(step * n + r)) / n end
      total:backward()
      opt_one:step()
      opt_one:zero_grad()
      local d = distance(values_of(model:parameters()), values_of(one:parameters()))
      assert(d < TOLERANCE, "step " .. step .. ": " .. d)
      job:verify()
    end
    local stats = job:stats()
    assert(stats.steps == 5 and stats.bytes > 0 and stats.early == 5 * stats.buckets, "stats")
    job:close()
    say "ok"
  ]]

  on_ranks("takes the steps of one rank with all batches", function()
    local check = cases.begin()
    for _, case in ipairs {
      {2, "{}", 1e-6}, {3, "{bucket_mib = 1e-4}", 1e-6}, {2, "{bucket_mib = 1e-4, shared_result = true}", 1e-6},
      {2, "{compress = 'bf16', check_finite = 'error', hash_every = 1}", 2e-2}, {3, "{compress = 'f16'}", 2e-3},
      {2, "{bucket_mib = 1e-4}", 1e-6, "tcp"}, {2, "{shared_result = true, compress = nil}", 1e-6, "ipc"},
      {2, "{bucket_mib = 1e-4}", 1e-6, "auto", true},
    } do
      check(("%d ranks %s %s%s"):format(case[1], case[2], case[4] or "", case[5] and " checkpoint" or ""), function()
        assert_ok(case[1], ("local OPTIONS, TOLERANCE, CHECKPOINT = %s, %g, %s\n"):format(case[2], case[3], tostring(case[5])) .. EQUAL, case[4])
      end)
    end
    check.done()
  end)

  on_ranks("comes to the end together when ranks have different numbers of batches", function()
    assert_ok(3, [[
      local rank = dist.rank()
      local model, i, num = model_of(0), 0, 0
      local job, opt = dist.register(model, {hash_every = 1}), nil
      opt = optim.Adam(model:parameters(), {lr = 0.01})
      local function batches() -- 0, 2 and 4 of them
        i = i + 1
        if i <= 2 * rank then return batch_of(10 * rank + i) end
      end
      local seen = {}
      for x, y in job:each(batches, {optimizer = opt}) do
        num = num + 1
        loss_of(model, x, y):backward()
        seen[#seen + 1] = job:step(opt)
        opt:zero_grad()
      end
      assert(num == 2 * rank and job.steps == 4, job.steps)
      assert(table.concat(seen, " ") == ({[0] = "", "2 2", "2 2 1 1"})[rank], table.concat(seen, " "))
      job:verify()
      job:close()
      say "ok"
    ]])
  end)

  on_ranks("goes on from a checkpoint, bit by bit", function()
    assert_ok(2, [[
      local n, rank = dist.size(), dist.rank()
      local function train(model, opt, job, first, last)
        for step = first, last do
          loss_of(model, batch_of(step * n + rank)):backward()
          job:step(opt)
          opt:zero_grad()
        end
      end
      local function copy_of(value)
        if type(value) ~= "table" then return type(value) == "userdata" and value:clone() or value end
        local result = {}
        for k, v in pairs(value) do result[k] = copy_of(v) end
        return result
      end
      local whole = model_of(1)
      local job = dist.register(whole)
      local opt = optim.Adam(whole:parameters(), {lr = 0.01})
      train(whole, opt, job, 1, 3)
      local state, opt_state = copy_of(whole:state_dict()), copy_of(opt:state_dict())
      train(whole, opt, job, 4, 6)
      job:close()
      local rest = model_of(9)
      if rank == 0 then rest:load_state_dict(state) end -- the others get it by registration
      job = dist.register(rest)
      opt = optim.Adam(rest:parameters(), {lr = 0.01})
      opt:load_state_dict(opt_state)
      train(rest, opt, job, 4, 6)
      assert(distance(values_of(whole:parameters()), values_of(rest:parameters())) == 0)
      job:close()
      say "ok"
    ]])
  end)

  local SHARES = [[
      local n, rank = dist.size(), dist.rank()
      local function train(opts)
        local model = model_of(1)
        local job, opt = dist.register(model, opts), optim.Adam(model:parameters(), {lr = 0.01})
        for step = 1, 4 do
          loss_of(model, batch_of(step * n + rank)):backward()
          job:step(opt)
          opt:zero_grad()
        end
        job:verify()
        local states, own = 0, 0
        for _, p in ipairs(model:parameters()) do
          if opt.state[p] then states = states + 1 end
          if dist.registered(p).owner == rank then own = own + 1 end
        end
        job:close()
        return values_of(model:parameters()), states, own
      end
      local expected, all = train {hash_every = 1}
      for _, shard in ipairs {"ranks", "host"} do
        local got, states, own = train {shard = shard, hash_every = 1}
        local is_shared = shard == "ranks" or dist.info().transport == "shm"
        assert(all == 4 and states == own and is_shared == (own < 4), states)
        assert(distance(expected, got) == 0)
      end
      say "ok"
  ]]
  for _, transport in ipairs {"shm", "tcp"} do
    on_ranks("shares the optimizer's work, with the same result, over " .. transport, function() assert_ok(3, SHARES, transport) end)
  end

  -- A save and a load in the middle, and a registration anew, as after a regroup: what was in common is each rank's own in between.
  on_ranks("has one copy of the parameters on a host, and gives each rank its own again", function()
    assert_ok(3, [[
      local rank = dist.rank()
      local model = model_of(rank)
      local kept = model:state_dict()
      local function train(steps)
        local job, opt = dist.register(model, {shard = "host"}), optim.SGD(model:parameters(), {lr = 0.1})
        for step = 1, steps do
          loss_of(model, batch_of(step * 3 + rank)):backward()
          job:step(opt)
          opt:zero_grad()
        end
        local p = model:parameters()[1]
        dist.barrier()
        if rank == 1 then ag.no_grad(function() p:fill_(7) end) end
        dist.barrier()
        assert(p:get(1, 1) == 7 and kept["1.weight"]:get(1, 1) == 7, "seen by all, in views, too")
        dist.barrier()
        job:close()
        ag.no_grad(function() p:fill_(rank) end)
        dist.barrier()
        assert(p:get(2, 2) == rank and kept["1.weight"]:get(2, 2) == rank, "each rank's own again")
      end
      train(2)
      train(1)
      say "ok"
    ]], "shm")
  end)

  on_ranks("tells all ranks what differs", function()
    assert_ok(3, [[
      local rank = dist.rank()
      local function fails(code, part, fn, ...)
        local ok, err = pcall(fn, ...)
        assert(not ok and type(err) == "table", tostring(err))
        assert(err.code == code and err.message:find(part, 1, true) and err.rank == rank, err.code .. ": " .. err.message)
        return err
      end
      local odd = rank == 2
      local model = odd and nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4)) or model_of(1)
      local err = fails("mismatch", "rank 0 called register, rank 2 called all_reduce(sum) of f32[1]",
        odd and dist.all_reduce or dist.register, odd and ag.ones {1} or model)
      fails("mismatch", "rank 0 called register, rank 2 called group of 2 ranks", odd and dist.group or dist.register,
        odd and {0, 2} or model)
      err = fails("mismatch", "parameter 3 is '3.weight' f32[", dist.register, model)
      assert(err.culprits[1] == 2)
      local list = {ag.ones({2}, {requires_grad = not odd}), odd and 5 or ag.ones({2}, {requires_grad = true})}
      local function refused() return fails(odd and "argument" or "mismatch", "'[1]' does not require gradients", dist.register, list) end
      err = refused()
      if odd then assert(#err.offenders == 2) end
      model = model_of(1)
      fails("mismatch", "what the job is made with", dist.register, model, {compress = odd and "bf16" or nil})
      local job = dist.register(model, {hash_every = 2})
      local opt = optim.SGD(model:parameters(), {lr = 0.1})
      loss_of(model, batch_of(rank)):backward()
      job:step(opt)
      opt:zero_grad()
      if odd then ag.no_grad(function() model:parameters()[2]:add_(1e-3) end) end
      loss_of(model, batch_of(rank)):backward()
      err = fails("mismatch", "'1.bias' has other values on rank 2", job.step, job, opt)
      assert(err.culprits[1] == 2)
      job:close()
      fails("mismatch", "'1.bias' has other values on rank 2", dist.register, model, {broadcast = "verify"})
      job = dist.register(model)
      job:verify()
      job:close()
      say "ok"
    ]])
  end)

  on_ranks("skips together where one rank has a NaN, and knows whose it is", function()
    assert_ok(2, [[
      local rank = dist.rank()
      local model = model_of(1)
      local job, opt = dist.register(model, {check_finite = "skip", hash_every = 1}), nil
      opt = optim.SGD(model:parameters(), {lr = 0.1})
      local before = values_of(model:parameters())
      local loss = loss_of(model, batch_of(rank))
      if rank == 1 then loss = loss * (0 / 0) end
      loss:backward()
      local contributors, stepped = job:step(opt)
      assert(contributors == 2 and not stepped and job:stats().skipped == 1)
      assert(job.report:find("'1.weight' on rank 1", 1, true) and not job.report:find("rank 0", 1, true), job.report)
      assert(distance(before, values_of(model:parameters())) == 0)
      opt:zero_grad()
      loss_of(model, batch_of(rank)):backward()
      assert(select(2, job:step(opt)) and job.report == "")
      job:close()
      say "ok"
    ]])
  end)

  on_ranks("ends for all when one rank fails within backward and drops it", function()
    assert_ok(2, [[
      local rank, model = dist.rank(), model_of(1)
      local job, opt = dist.register(model, {bucket_mib = 1e-4}), nil
      opt = optim.SGD(model:parameters(), {lr = 0.1})
      model:parameters()[1]:register_hook(function() if rank == 0 then error "broken" end end)
      local ok, err = pcall(function()
        loss_of(model, batch_of(1)):backward()
        job:step(opt)
      end)
      assert(not ok)
      if rank == 1 then assert(err.code == "peer" and err.message:find "rank 0 failed: it dropped its job", tostring(err)) end
      job = nil
      collectgarbage()
      collectgarbage()
      say "ok"
    ]])
  end)

  on_ranks("may be closed, and its group, while gradients are still held", function()
    assert_ok(2, [[
      local model = model_of(1)
      local job = dist.register(model)
      loss_of(model, batch_of(dist.rank())):backward()
      job:sync()
      local grad = model:parameters()[1].grad
      local values = values_of {grad}
      if dist.rank() == 0 then job:close() end
      dist.close()
      assert(distance(values, values_of {grad}) == 0)
      job:close()
      grad, model = nil, nil
      collectgarbage()
      collectgarbage()
      say "ok"
    ]])
  end)

  on_ranks("may call collectives between backward and the step, and in the place of a batch", function()
    for _, transport in ipairs {"shm", "tcp"} do
      assert_ok(3, [[
        local rank, model = dist.rank(), model_of(1)
        local job, opt = dist.register(model), optim.SGD(model:parameters(), {lr = 0.1})
        local left, sums = rank + 1, {}
        local function batch()
          left = left - 1
          if left >= 0 then return batch_of(left * 3 + rank) end
        end
        local function shadow() -- the calls of the loop, in the same order
          local sum = dist.all_reduce(100, {contribute = false})
          job:step(opt, {contribute = false})
          opt:zero_grad()
          if job.contributors > 0 then sums[#sums + 1] = sum end
        end
        for x, y in job:each(batch, {optimizer = opt, shadow = shadow}) do
          loss_of(model, x, y):backward()
          sums[#sums + 1] = dist.all_reduce(10) -- reductions of gradients are under way
          job:step(opt)
          opt:zero_grad()
        end
        assert(table.concat(sums, " ") == "30 20 10", table.concat(sums, " "))
        say "ok"
      ]], transport)
    end
  end)
end)
