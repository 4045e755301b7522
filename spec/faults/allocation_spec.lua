--- allocation: the n-th allocation of a call fails, for every n until the call passes: the error says so, nothing is lost, all goes on.
local ag = require "argand"
local core = require "argand.core"
local nn = require "argand.nn"
local optim = require "argand.optim"
local cases = require "support.cases"
local live_memory = require "support.live_memory"

local most = 2000
local sane = live_memory.sane

-- Runs run(make()) with the n-th allocation failing, n = 1, 2, ... A failure in make is no matter of run.
local function each_allocation(check, name, make, run)
  run(make()) -- what is made once and kept (slabs, caches) is there from here on
  sane()
  for n = 1, most do
    local passed
    check(("%s, allocation %d"):format(name, n), function()
      local before = live_memory.now()
      -- In a coroutine, whose stack goes with it: on ours a value may outlive its use.
      local ok, err = coroutine.resume(coroutine.create(function()
        local state = make()
        core.memory_fail_after(n)
        run(state)
      end))
      core.memory_fail_after(0)
      passed = ok
      if not ok then
        assert(type(err) == "table" and err.code == "memory", "not a memory error: " .. tostring(err))
        assert(err.op, "no op is named: " .. err.message)
      end
      err = nil -- luacheck: ignore
      sane()
      if not passed then live_memory.assert_same(before) end
    end)
    if passed ~= false then return end
  end
  error(name .. " never passes")
end

local function tracked(device, ...) return ag.randn({...}, {device = device, requires_grad = true}) end
local function indices(device, ...) return ag.tensor({...}, {dtype = "i64", device = device}) end

-- Each takes tensors that make gives and returns a float result to be differentiated.
local samples = {
  add = {{3, 40}, {40}, fn = function(a, b) return a + b end},
  scaled = {{3, 40}, fn = function(a) return a * 2 + 1 end},
  div = {{3, 40}, {3, 1}, fn = function(a, b) return a / (b * b + 1) end},
  gelu = {{30, 4}, fn = function(a) return a:gelu() end},
  strided = {{30, 4}, fn = function(a) return a:t():tanh():t():reshape(120) end},
  matmul = {{5, 40}, {40, 6}, fn = function(a, b) return a:matmul(b) end},
  batched = {{3, 5, 8}, {3, 8, 6}, fn = function(a, b) return a:matmul(b) end},
  sum = {{5, 40}, fn = function(a) return a:sum(1) end},
  var = {{5, 40}, fn = function(a) return a:var(2) end},
  amax = {{5, 40}, fn = function(a) return a:amax(2) end},
  cumsum = {{5, 40}, fn = function(a) return a:cumsum(2) end},
  sort = {{5, 40}, fn = function(a) return (a:sort(2)) end},
  softmax = {{5, 40}, fn = function(a) return a:softmax(2) end},
  layer_norm = {{5, 40}, {40}, {40}, fn = function(a, w, b) return a:layer_norm({40}, w, b) end},
  cross_entropy = {{3, 40}, fn = function(a) return a:cross_entropy(indices(a.device, 1, 5, 40)) end},
  embedding = {{30, 8}, fn = function(a) return a:embedding(indices(a.device, 1, 5, 30)) end},
  gather = {{30, 4}, fn = function(a) return a:index_select(1, indices(a.device, 1, 5, 30)) end},
  index = {{30, 4}, fn = function(a) return a[{{2, 20}, -1}] end},
  index_positions = {{30, 4}, fn = function(a) return a[{indices(a.device, 1, 5), indices(a.device, 4, 1)}] end},
  index_mask = {{30, 4}, fn = function(a) return a[a:gt(0)] end},
  assign = {{30, 4}, {4}, fn = function(a, b) local y = a * 2 y[{{3, 9}}] = b return y end},
  assign_mask = {{30, 4}, fn = function(a) local y = a * 2 y[y:gt(1)] = 1 return y end},
  assign_positions = {{30, 4}, {4}, fn = function(a, b) local y = a * 2 y[indices(a.device, 1, 9)] = b return y end},
  assign_scattered = {{30, 4}, fn = function(a) local y = a * 2 y[{":", indices(a.device, 1, 4)}] = 0 return y end},
  inplace = {{30, 4}, fn = function(a) local y = a * 2 y:mul_(3):add_(1) return y end},
  cat = {{30, 4}, {2, 4}, fn = function(a, b) return ag.cat({a, b, a}, 1) end},
  where = {{30, 4}, {4}, fn = function(a, b) return ag.where(a:gt(0), a, b) end},
  cast = {{30, 4}, fn = function(a) return a:to("f64"):exp():to("f32") end},
  half = {{30, 4}, fn = function(a) return a:to("f16"):softmax(2):to("f32") end},
  dropout = {{30, 4}, fn = function(a) return a:dropout(0.5) end},
  einsum = {{3, 4}, {4, 5}, fn = function(a, b) return ag.einsum("ij,jk->ki", a, b) end},
  checkpoint = {{30, 4}, fn = function(a) return ag.checkpoint(function(x) return x:exp() * 2 end, a) end},
}

-- Interpreted: compiled code leaves values of its own in Lua's stack, and then what is held is not exact.
local was_compiling = jit.status()

describe("a failing allocation", function()
  setup(function() jit.off() end)
  teardown(function() if was_compiling then jit.on() end end)

  for _, device in ipairs {"cpu", "reference"} do
    it("is an error in forward and backward on " .. device, function()
      local check = cases.begin()
      local function make(shapes)
        local list = {}
        for i, shape in ipairs(shapes) do list[i] = tracked(device, unpack(shape)) end
        return list
      end
      for name, sample in pairs(samples) do
        each_allocation(check, name, function() return make(sample) end, function(list)
          local y = sample.fn(unpack(list))
          y:sum():backward()
        end)
      end
      check.done()
    end)
  end

  it("is an error where Lua values become tensors and back", function()
    local check = cases.begin()
    local rows = {}
    for i = 1, 20 do rows[i] = {i, -i, 0.5} end
    local nothing = function() end
    each_allocation(check, "tensor", nothing, function() return ag.tensor(rows, {dtype = "i32"}), 1 end)
    each_allocation(check, "tensor with gradient", nothing, function() return ag.tensor(rows, {requires_grad = true}), 1 end)
    each_allocation(check, "tensor on a device", nothing, function() return ag.tensor(rows, {device = "reference"}), 1 end)
    each_allocation(check, "tolist", function() return ag.ones(20, 30):t() end, function(t) return t:tolist(), 1 end)
    each_allocation(check, "tostring", function() return ag.ones(20, 30):t() end, function(t) return tostring(t), 1 end)
    each_allocation(check, "equal", function() return ag.ones(20, 30) end, function(t) return t:equal(t), 1 end)
    each_allocation(check, "allclose", function() return ag.ones(20, 30) end, function(t) return t:allclose(t), 1 end)
    each_allocation(check, "generator", nothing, function() return ag.generator(1), 1 end)
    each_allocation(check, "out", function() return ag.ones(20, 30) end, function(t) return t:t():sum(1, {out = ag.zeros(20)}), 1 end)
    each_allocation(check, "hook", function() return tracked("cpu", 20) end, function(t)
      local y = t * 2
      y:register_hook(function(g) return g * 2 end)
      y:sum():backward()
    end)
    each_allocation(check, "grad", function() return tracked("cpu", 20) end, function(t)
      local g = ag.grad((t * t * t):sum(), {t}, {create_graph = true})
      return ag.grad(g[1]:sum(), t), 1
    end)
    check.done()
  end)

  it("leaves a training step that can be taken again", function()
    local check = cases.begin()
    for name, new in pairs {
      sgd = function(p) return optim.SGD(p, {lr = 0.1, momentum = 0.9}) end, adam = function(p) return optim.AdamW(p, {lr = 0.1}) end,
    } do
      each_allocation(check, name, function()
        local net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        return {net = net, optimizer = new(net:parameters()), x = ag.randn(4, 6), target = indices("cpu", 1, 2, 3, 1)}
      end, function(s)
        s.optimizer:zero_grad()
        s.net(s.x):cross_entropy(s.target):backward()
        s.optimizer:step()
      end)
    end
    check.done()
  end)
end)
