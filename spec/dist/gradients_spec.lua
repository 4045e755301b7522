--- gradients_spec: backward through collectives, on simulated ranks: against finite differences of the sum of all ranks' losses.
local ag = require "argand"
local cases = require "support.cases"
local dist = require "argand.dist"

local N = 3

setup(function() dist.init() end)
teardown(function() dist.close() end)

local function fails(code, pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error " .. code)
  assert(type(err) == "table" and err.code == code, ("expected code %s, got %s"):format(code, tostring(err)))
  assert(tostring(err):find(pattern), ("expected '%s' in: %s"):format(pattern, tostring(err)))
end

-- Different values everywhere, none near another one's or 0.
local function inputs_of(shapes)
  local inputs, k = {}, 0
  for rank = 0, N - 1 do
    local count, list = 1, {}
    for _, size in ipairs(shapes[rank + 1]) do count = count * size end
    for i = 1, count do
      k = k + 1
      list[i] = ((k * 7) % 23) / 8 - 1.3
    end
    inputs[rank] = list
  end
  return inputs
end

-- A loss whose weights differ from element to element and from rank to rank.
local function loss_of(y, rank)
  local weights = (ag.arange(0, math.max(y:numel(), 1), {dtype = "f64"}) * 0.3 + 0.5 + rank):narrow(1, 1, y:numel()):reshape(y:shape())
  return (y * y * y * weights):sum()
end

local function leaf(values, shape)
  local t = ag.tensor(values, {dtype = "f64"}):reshape(shape)
  t.requires_grad = true
  return t
end

-- The sum of all ranks' losses, or of what second(gradients) makes, and the gradients by backward.
local function run(case, inputs, order)
  local grads = {}
  local report = dist.simulate {n = N, seed = 3}(function(rank)
    local x = leaf(inputs[rank], case.shapes[rank + 1])
    local loss = case.program(x, rank)
    if order == 2 then
      local g = ag.grad(loss, x, {create_graph = true})
      loss = loss_of(g, rank)
    end
    loss:backward()
    grads[rank] = x.grad:reshape(#inputs[rank]):tolist()
    return loss:item()
  end):check()
  local total = 0
  for rank = 0, N - 1 do total = total + report[rank].results[1] end
  return total, grads
end

local function check_gradients(case, order)
  local inputs = inputs_of(case.shapes)
  if case.inputs then case.inputs(inputs) end
  local _, grads = run(case, inputs, order)
  local step = 1e-5
  for rank = 0, N - 1 do
    for i, value in ipairs(inputs[rank]) do
      inputs[rank][i] = value + step
      local up = run(case, inputs, order)
      inputs[rank][i] = value - step
      local down = run(case, inputs, order)
      inputs[rank][i] = value
      local expected, got = (up - down) / (2 * step), grads[rank][i]
      local bound = 1e-5 * math.max(1, math.abs(expected))
      assert(math.abs(expected - got) < bound, ("rank %d, element %d: expected %.9g, got %.9g"):format(rank, i, expected, got))
    end
  end
end

local function same_shape(...)
  local shapes = {}
  for rank = 1, N do shapes[rank] = {...} end
  return shapes
end

local list = {}
local function add(name, shapes, program, more)
  local case = {name = name, shapes = shapes, program = program}
  for key, value in pairs(more or {}) do case[key] = value end
  list[#list + 1] = case
end

for _, op in ipairs {"sum", "mean", "min", "max", "prod"} do
  add("all_reduce " .. op, same_shape(2, 2), function(x, rank) return loss_of(dist.all_reduce(x, {op = op}), rank) end)
  add("reduce " .. op, same_shape(3), function(x, rank)
    local y = dist.reduce(x, {op = op, root = 1})
    return rank == 1 and loss_of(y, rank) or y
  end)
  add("reduce_scatter " .. op, same_shape(3, 2), function(x, rank) return loss_of(dist.reduce_scatter(x, {op = op}), rank) end)
end
add("all_reduce prod with zeros", same_shape(3), function(x, rank) return loss_of(dist.all_reduce(x, {op = "prod"}) + 1, rank) end,
  {inputs = function(inputs) inputs[0][1], inputs[1][2], inputs[2][2] = 0, 0, 0 end})
add("broadcast", same_shape(3), function(x, rank) return loss_of(dist.broadcast(x, {root = 2}) + x * 0.5, rank) end)
add("all_gather", same_shape(2, 2), function(x, rank) return loss_of(dist.all_gather(x), rank) end)
add("all_gather 0-d", same_shape(), function(x, rank) return loss_of(dist.all_gather(x), rank) end)
add("all_gather uneven", {{1, 2}, {3, 2}, {2, 2}}, function(x, rank) return loss_of(dist.all_gather(x, {uneven = true}), rank) end)
add("gather", same_shape(2), function(x, rank)
  local y = dist.gather(x, {root = 2})
  return rank == 2 and loss_of(y, rank) or y + (x * 0):sum()
end)
add("scatter", same_shape(6), function(x, rank)
  local y = dist.scatter(rank == 1 and x or nil, {root = 1, shape = {2}, dtype = "f64", requires_grad = true})
  return loss_of(y, rank) + (x * x):sum()
end, {once = true})
add("all_to_all", same_shape(6, 2), function(x, rank) return loss_of(dist.all_to_all(x), rank) end)
add("all_to_all with counts", {{4}, {3}, {5}}, function(x, rank)
  local counts = {{1, 0, 3}, {1, 1, 1}, {0, 3, 2}}
  return loss_of(dist.all_to_all(x, {counts = counts[rank + 1]}), rank)
end)
add("send and receive", same_shape(2), function(x, rank)
  local loss = (x * x):sum()
  if rank == 0 then return loss + dist.send(x * 2, 2) end
  if rank == 2 then return loss + loss_of(dist.receive(0, {like = x:detach(), requires_grad = true}) * x, rank) end
  return loss
end, {once = true})
add("async", same_shape(2), function(x, rank)
  local a, b = dist.all_reduce(x, {async = true}), dist.all_gather({x, y = x * 2}, {async = true})
  local gathered = b:wait()
  return loss_of(gathered[1], rank) + loss_of(gathered.y, rank) + loss_of(a:wait(), rank)
end)
add("in a chain", same_shape(2), function(x, rank)
  local y = dist.all_reduce(x:tanh(), {op = "mean"}) * x
  return loss_of(dist.all_gather(y), rank) + loss_of(dist.all_reduce(y:exp(), {op = "max"}), rank)
end)
add("in a group", same_shape(2), function(x, rank)
  local pair = dist.group {0, 2}
  return pair and loss_of(pair:all_reduce(x), rank) or (x * x):sum()
end)

describe("backward through collectives", function()
  it("agrees with finite differences", function()
    local check = cases.begin()
    for _, case in ipairs(list) do check(case.name, check_gradients, case, 1) end
    check.done()
  end)

  it("can be differentiated again", function()
    local check = cases.begin()
    for _, case in ipairs(list) do
      if not case.once then check(case.name, check_gradients, case, 2) end
    end
    check.done()
  end)

  it("refuses a second time where it cannot", function()
    local check = cases.begin()
    for _, name in ipairs {"scatter", "send and receive"} do
      for _, case in ipairs(list) do
        if case.name == name then
          check(name, fails, "autodiff", "create_graph", function()
            local inputs, err = inputs_of(case.shapes), nil
            dist.simulate {n = N}(function(rank)
              local x = leaf(inputs[rank], case.shapes[rank + 1])
              local ok, caught = pcall(ag.grad, case.program(x, rank), x, {create_graph = true})
              if not ok and (not err or err.code ~= "autodiff") then err = caught end
            end)
            error(err, 0)
          end)
        end
      end
    end
    check.done()
  end)

  it("shares the gradient of an extreme evenly among ties on all ranks", function()
    dist.simulate {n = 3}(function(rank)
      local x = leaf({1, 5, rank == 1 and 3 or 2}, {3})
      dist.all_reduce(x, {op = "max"}):sum():backward()
      local expected = {1, 1, rank == 1 and 3 or 0} -- three losses, three ties
      assert.same(expected, x.grad:tolist())
      local y = leaf({0 / 0, 1}, {2})
      dist.all_reduce(y, {op = "min"}):sum():backward()
      assert.same({1, 1}, y.grad:tolist())
    end):check()
  end)

  it("works in every float dtype, and keeps it", function()
    for _, dtype in ipairs {"f16", "bf16", "f32", "f64"} do
      dist.simulate {n = 2}(function()
        for _, op in ipairs {"sum", "mean", "max", "prod"} do
          local x = ag.tensor({1, 2, 4}, {dtype = dtype, requires_grad = true})
          dist.all_reduce(x, {op = op}):sum():backward()
          assert.equal(dtype, x.grad.dtype)
          assert.same(({sum = {2, 2, 2}, mean = {1, 1, 1}, max = {1, 1, 1}, prod = {2, 4, 8}})[op], x.grad:tolist())
        end
      end):check()
    end
  end)
end)

describe("recording", function()
  it("happens for tracked tensors only, while it is enabled", function()
    dist.simulate {n = 2}(function()
      local x = leaf({1, 2}, {2})
      assert.equal("all_reduce", dist.all_reduce(x).grad_op)
      assert.is_true(dist.all_reduce(x * 2).requires_grad)
      assert.is_false(dist.all_reduce(x:detach()).requires_grad)
      assert.is_false(ag.no_grad(dist.all_reduce, x).requires_grad)
      assert.is_true(dist.broadcast(x:detach(), {requires_grad = true}).requires_grad)
      local mixed = dist.all_reduce {x, x:detach(), 3}
      assert.is_true(mixed[1].requires_grad)
      assert.is_false(mixed[2].requires_grad)
      assert.equal(6, mixed[3])
      local token = dist.reduce(x, {root = 0})
      assert.same(dist.rank() == 0 and {2} or {}, token:shape())
    end):check()
  end)

  it("is an error for the others when one rank does not go backward", function()
    local report = dist.simulate {n = 3}(function(rank)
      local y = dist.all_reduce(leaf({1, 2}, {2})):sum()
      if rank ~= 1 then y:backward() end
    end)
    assert.equal("peer", report[0].error.code)
    assert.truthy(report[2].error.message:find "rank 1 has left")
  end)

  it("keeps no graph alive once the result is gone", function()
    collectgarbage()
    collectgarbage()
    local before = ag.memory().nodes
    dist.simulate {n = 2}(function()
      for _ = 1, 10 do
        local y = dist.all_reduce(leaf({1, 2}, {2}), {op = "prod"})
        assert.is_true(y.requires_grad)
      end
    end):check()
    collectgarbage()
    collectgarbage()
    assert.equal(before, ag.memory().nodes)
  end)
end)
