--- optim: SGD, Adam and AdamW step by step against their formulas, written out over plain numbers.
local ag = require "argand"
local core = require "argand.core"
local cases = require "support.cases"
local optim = ag.optim

local COUNT, STEPS = 5, 6

-- Gradients of every step: [STEPS][COUNT], the same on every run.
local function gradients(seed)
  local list = {}
  for step = 1, STEPS do
    list[step] = {}
    for i = 1, COUNT do list[step][i] = math.sin(seed * 7.3 + step * 1.7 + i * 2.9) end
  end
  return list
end

local start = { 0.5, -1.25, 2, 0, 3.5 }

-- p, g, s: one number each; s is the state of that number. o: options. Returns the new p.
local formulas = {}

function formulas.SGD(p, g, s, o, step)
  local d = g + (o.weight_decay or 0) * p
  if (o.momentum or 0) ~= 0 then
    s.buffer = step == 1 and d or o.momentum * s.buffer + (1 - (o.dampening or 0)) * d
    d = o.nesterov and d + o.momentum * s.buffer or s.buffer
  end
  return p - o.lr * d
end

local function adam(p, g, s, o, step)
  local beta1, beta2 = o.beta1 or 0.9, o.beta2 or 0.999
  s.m = beta1 * (s.m or 0) + (1 - beta1) * g
  s.v = beta2 * (s.v or 0) + (1 - beta2) * g * g
  local m, v = s.m / (1 - beta1 ^ step), s.v / (1 - beta2 ^ step)
  return p - o.lr * m / (math.sqrt(v) + (o.eps or 1e-8))
end

function formulas.Adam(p, g, s, o, step)
  return adam(p, g + (o.weight_decay or 0) * p, s, o, step)
end

function formulas.AdamW(p, g, s, o, step)
  return adam(p - o.lr * (o.weight_decay or 1e-2) * p, g, s, o, step)
end

local function expected_after(name, opts, grads, steps)
  local values, states = { unpack(start) }, {}
  for step = 1, steps do
    for i = 1, COUNT do
      states[i] = states[i] or {}
      values[i] = formulas[name](values[i], grads[step][i], states[i], opts, step)
    end
  end
  return values
end

local function assert_near(expected, tensor, tolerance)
  for i, value in ipairs(tensor:tolist()) do
    assert.is_true(math.abs(value - expected[i]) <= tolerance * (1 + math.abs(expected[i])),
      ("position %d: expected %.17g, got %.17g"):format(i, expected[i], value))
  end
end

local variants = {
  { "SGD", { lr = 0.1 } },
  { "SGD", { lr = 0.1, weight_decay = 0.2 } },
  { "SGD", { lr = 0.1, momentum = 0.9 } },
  { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.3 } },
  { "SGD", { lr = 0.1, momentum = 0.9, nesterov = true } },
  { "SGD", { lr = 0.05, momentum = 0.8, nesterov = true, weight_decay = 0.1 } },
  { "SGD", { lr = 0.05, momentum = 0.8, dampening = 0.5, weight_decay = 0.1 } },
  { "SGD", { lr = 0 } },
  { "Adam", { lr = 0.01 } },
  { "Adam", { lr = 0.1, beta1 = 0.5, beta2 = 0.9, eps = 1e-3 } },
  { "Adam", { lr = 0.1, weight_decay = 0.3 } },
  { "Adam", { lr = 0.1, beta1 = 0, beta2 = 0 } },
  { "AdamW", { lr = 0.01 } },
  { "AdamW", { lr = 0.1, weight_decay = 0.3 } },
  { "AdamW", { lr = 0.1, weight_decay = 0, eps = 1e-2 } },
}

local function label_of(name, opts)
  local parts = {}
  for key, value in pairs(opts) do parts[#parts + 1] = key .. "=" .. tostring(value) end
  table.sort(parts)
  return name .. " " .. table.concat(parts, " ")
end

-- {dtype, tolerance after STEPS steps}; half dtypes round the parameter and the state at every step
local precisions = { { "f64", 1e-13 }, { "f32", 2e-6 }, { "f16", 2e-2 }, { "bf16", 1e-1 } }

describe("optimizers", function()
  it("follow their formulas in every float dtype", function()
    local check = cases.begin()
    local grads = gradients(1)
    for _, variant in ipairs(variants) do
      local name, opts = unpack(variant)
      for _, precision in ipairs(precisions) do
        local dtype, tolerance = unpack(precision)
        check(label_of(name, opts) .. " " .. dtype, function()
          local p = ag.tensor(start, { dtype = dtype, requires_grad = true })
          local optimizer = optim[name]({ p }, opts)
          for step = 1, STEPS do
            p.grad = ag.tensor(grads[step], { dtype = dtype })
            optimizer:step()
            if dtype == "f64" then assert_near(expected_after(name, opts, grads, step), p, tolerance) end
          end
          assert_near(expected_after(name, opts, grads, STEPS), p, tolerance)
          assert.equal(dtype, p.dtype)
          assert.is_true(p.is_leaf and p.requires_grad)
        end)
      end
    end
    check.done()
  end)

  it("update non-contiguous parameters, and with non-contiguous gradients", function()
    local grads = gradients(2)
    for _, name in ipairs { "SGD", "AdamW" } do
      local base = ag.zeros(COUNT, 2, { dtype = "f64" })
      local p = base:select(2, 1):detach()
      p:copy_(ag.tensor(start, { dtype = "f64" }))
      p.requires_grad = true
      local opts = { lr = 0.1, momentum = name == "SGD" and 0.9 or nil }
      local optimizer = optim[name]({ p }, opts)
      for step = 1, 3 do
        local wide = ag.zeros(COUNT, 3, { dtype = "f64" })
        wide:select(2, 2):copy_(ag.tensor(grads[step], { dtype = "f64" }))
        p.grad = wide:select(2, 2)
        optimizer:step()
      end
      assert.is_false(p.is_contiguous)
      assert_near(expected_after(name, opts, grads, 3), p, 1e-13)
      assert_near({ 0, 0, 0, 0, 0 }, base:select(2, 2), 0)
      assert_near(expected_after(name, opts, grads, 3), base:select(2, 1), 1e-13)
    end
  end)

  it("make one kernel call a step, whatever the number of parameters", function()
    for _, name in ipairs { "SGD", "Adam", "AdamW" } do
      local params = {}
      for i = 1, 7 do params[i] = ag.zeros(i, 2, { requires_grad = true }) end
      local optimizer = optim[name](params, { lr = 0.1 })
      local call, count = core.call, 0
      core.call = function(...)
        count = count + 1
        return call(...)
      end
      local ok, err = pcall(function()
        for _ = 1, 3 do
          for _, p in ipairs(params) do p.grad = ag.ones_like(p) end
          optimizer:step()
        end
      end)
      core.call = call
      assert.is_true(ok, err)
      assert.equal(3, count)
    end
  end)

  it("leave parameters without a gradient alone, which then count their own steps", function()
    local grads = gradients(3)
    local p = ag.tensor(start, { dtype = "f64", requires_grad = true })
    local late = ag.tensor(start, { dtype = "f64", requires_grad = true })
    local optimizer = optim.Adam({ p, late }, { lr = 0.1 })
    for step = 1, 4 do
      p.grad = ag.tensor(grads[step], { dtype = "f64" })
      if step > 2 then late.grad = ag.tensor(grads[step - 2], { dtype = "f64" }) end
      optimizer:step()
      if step == 2 then assert.same(start, late:tolist()) end
    end
    assert_near(expected_after("Adam", { lr = 0.1 }, grads, 4), p, 1e-13)
    assert_near(expected_after("Adam", { lr = 0.1 }, grads, 2), late, 1e-13)
    optim.SGD({ late }):zero_grad()
    optimizer:zero_grad()
    assert.is_nil(p.grad)
    optimizer:step() -- nothing to do
  end)

  it("give every group its own options, and lr to all", function()
    local grads = gradients(4)
    local function parameter() return ag.tensor(start, { dtype = "f64", requires_grad = true }) end
    local a, b = parameter(), parameter()
    local optimizer = optim.SGD({ { params = { a } }, { params = { b }, lr = 0.5, momentum = 0.9 } }, { lr = 0.1 })
    assert.equal(0.1, optimizer.lr)
    for step = 1, 2 do
      a.grad, b.grad = ag.tensor(grads[step], { dtype = "f64" }), ag.tensor(grads[step], { dtype = "f64" })
      optimizer:step()
    end
    assert_near(expected_after("SGD", { lr = 0.1 }, grads, 2), a, 1e-13)
    assert_near(expected_after("SGD", { lr = 0.5, momentum = 0.9 }, grads, 2), b, 1e-13)
    optimizer.lr = 0
    local before = a:tolist()
    optimizer:step()
    assert.same(before, a:tolist())
    assert.equal(0, optimizer.groups[2].lr)
  end)

  it("reach the minimum of a quadratic", function()
    for _, name in ipairs { "SGD", "Adam", "AdamW" } do
      local p = ag.tensor({ 3, -2 }, { requires_grad = true })
      local optimizer = optim[name]({ p }, { lr = 0.1, weight_decay = 0 })
      for _ = 1, 300 do
        optimizer:zero_grad()
        local offset = p - 1
        offset:mul(offset):sum():backward()
        optimizer:step()
      end
      assert.is_true((p - 1):abs():amax():item() < 1e-2, name)
    end
  end)
end)
