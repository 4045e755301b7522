--- optim: what an optimizer accepts, its state, printing, and gradient clipping.
local ffi = require "ffi"
local ag = require "argand"
local cases = require "support.cases"
local optim = ag.optim

ffi.cdef "void ag_interrupt(void); void ag_interrupt_clear(void);"

local function raised(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok, "no error was raised")
  assert.is_truthy(type(err) == "table" and err.where and err.where:find("optimizer_spec.lua:", 1, true), tostring(err))
  return err
end

local function parameter(...) return ag.ones(..., { requires_grad = true }) end

describe("an optimizer", function()
  it("refuses what it cannot train, all faults in one error", function()
    local p = parameter(2)
    assert.equal("AdamW: parameter 2 is a number, not a tensor; parameter 3 does not require gradients; "
      .. "parameter 4 is the result of an op, not a leaf; parameter 5 has dtype i64, not a float dtype; "
      .. "parameter 6 is in the list twice",
      raised(function() optim.AdamW { p, 3, ag.ones(2), p * 2, ag.ones(2, { dtype = "i64" }), p } end).message)
    local check = cases.begin()
    local refused = {
      { "SGD: params: the list is empty; pass model:parameters()", function() optim.SGD {} end },
      { "SGD: params: expected a list of tensors or of groups, got nil; pass model:parameters()",
        function() optim.SGD() end },
      { "SGD: params: expected a list of tensors or of groups, got userdata; pass model:parameters()",
        function() optim.SGD(p) end },
      { "SGD: unknown option 'momentm'; did you mean 'momentum'?", function() optim.SGD({ p }, { momentm = 1 }) end },
      { "SGD: lr: expected a number >= 0, got -1", function() optim.SGD({ p }, { lr = -1 }) end },
      { "SGD: lr: expected a number >= 0, got nan", function() optim.SGD({ p }, { lr = 0 / 0 }) end },
      { "SGD: nesterov: needs a momentum and no dampening", function() optim.SGD({ p }, { nesterov = true }) end },
      { "Adam: beta2: expected a number in [0, 1), got 1", function() optim.Adam({ p }, { beta2 = 1 }) end },
      { "Adam: eps: expected a number >= 0, got -1", function() optim.Adam({ p }, { eps = -1 }) end },
      { "AdamW: weight_decay: expected a number >= 0, got -1", function() optim.AdamW({ p }, { weight_decay = -1 }) end },
      { "SGD: group 2 has no params", function() optim.SGD { { params = { p } }, {} } end },
      { "SGD group 1: unknown option 'rate'; options are: dampening, lr, momentum, nesterov, params, weight_decay",
        function() optim.SGD { { params = { p }, rate = 1 } } end },
      { "SGD: group 2: lr: expected a number >= 0, got -2",
        function() optim.SGD { { params = { p } }, { params = { parameter(1) }, lr = -2 } } end },
      { "SGD: lr: expected a number >= 0, got fast", function() optim.SGD({ p }).lr = "fast" end },
    }
    for _, case in ipairs(refused) do
      check(case[1], function()
        local message = raised(case[2]).message:gsub("%-nan", "nan")
        assert.equal(case[1], message)
      end)
    end
    check.done()
  end)

  it("does its step to the end whatever interrupt is pending", function()
    -- Half and strided tensors go through copies: flat ones and tile by tile.
    local function parameters()
      local half = ag.ones({ 300000 }, { dtype = "f16", requires_grad = true })
      local strided = ag.ones({ 300, 300 }):t()
      strided.requires_grad = true
      half.grad, strided.grad = ag.ones({ 300000 }, { dtype = "f16" }), ag.ones { 300, 300 }
      return { half, strided }
    end
    for _, class in ipairs { optim.SGD, optim.AdamW } do
      local plain, interrupted = parameters(), parameters()
      local optimizer = class(plain, { lr = 0.25 })
      optimizer:step()
      optimizer:step()
      optimizer = class(interrupted, { lr = 0.25 })
      optimizer:step() -- makes the state
      ffi.C.ag_interrupt()
      local ok, err = pcall(optimizer.step, optimizer)
      ffi.C.ag_interrupt_clear()
      assert.is_true(ok, tostring(err))
      for i, p in ipairs(plain) do assert.is_true(interrupted[i]:detach():eq(p:detach()):all():item()) end
    end
  end)

  it("prints its groups", function()
    assert.equal("SGD(\n  group 1: 1 parameters, dampening=0, lr=0.01, momentum=0, nesterov=false, weight_decay=0\n)",
      tostring(optim.SGD { parameter(2) }))
  end)
end)

describe("an optimizer's state", function()
  -- A parameter whose gradient differs at every step.
  local function take(p, optimizer, from, to)
    for step = from, to do
      p.grad = ag.full({ 3 }, math.sin(step))
      optimizer:step()
    end
  end

  it("goes on in another optimizer exactly where it was", function()
    for _, name in ipairs { "SGD", "Adam", "AdamW" } do
      local opts = name == "SGD" and { momentum = 0.9, lr = 0.1 } or { lr = 0.1 }
      local p = parameter { 3 }
      local first = optim[name]({ p }, opts)
      take(p, first, 1, 3)
      local q = p:detach():clone()
      q.requires_grad = true
      local second = optim[name]({ q }, { lr = 5, momentum = opts.momentum })
      second:load_state_dict(first:state_dict())
      assert.equal(0.1, second.lr)
      take(p, first, 4, 6) -- the copy does not follow
      take(q, second, 4, 6)
      assert.is_true(p:equal(q), name)
    end
  end)

  it("is refused with all faults in one error when it does not fit", function()
    local p, q = parameter { 3 }, parameter { 2, 2 }
    local from = optim.Adam { p, q }
    p.grad, q.grad = ag.ones(3), ag.ones(2, 2)
    from:step()
    local state = from:state_dict()
    local function message(optimizer) return raised(function() optimizer:load_state_dict(state) end).message end
    assert.equal("Adam: state: group 1 has 2 parameters, the optimizer's 1", message(optim.Adam { parameter { 3 } }))
    assert.equal("Adam: state: it has 1 groups, the optimizer 2",
      message(optim.Adam { { params = { parameter(1) } }, { params = { parameter(1) } } }))
    local swapped = message(optim.Adam { parameter { 3 }, parameter { 4 } })
    assert.is_truthy(swapped:find("exp_avg of parameter 2 is [2, 2], the parameter [4]", 1, true), swapped)
    assert.is_truthy(swapped:find("exp_avg_sq of parameter 2", 1, true), swapped)
    assert.equal("SGD: state: group 1 has the option beta1, the optimizer does not; "
      .. "group 1 has the option beta2, the optimizer does not; group 1 has the option eps, the optimizer does not",
      message(optim.SGD { parameter { 3 }, parameter { 2, 2 } }))
    assert.equal("SGD: state: expected what state_dict() returns",
      raised(function() optim.SGD({ parameter { 3 } }):load_state_dict {} end).message)
    optim.AdamW({ parameter { 3 }, parameter { 2, 2 } }):load_state_dict(state) -- the same state
  end)
end)

describe("clip_grad_norm", function()
  it("scales all gradients by one factor and returns the norm", function()
    local a, b, c = parameter { 2 }, parameter { 1 }, parameter { 4 }
    a.grad, b.grad = ag.tensor { 3, 0 }, ag.tensor { 4 }
    assert.is_true(math.abs(optim.clip_grad_norm({ a, b, c }, 1) - 5) < 1e-6)
    assert.is_true(a.grad:allclose(ag.tensor { 0.6, 0 }, { rtol = 1e-5 }))
    assert.is_true(b.grad:allclose(ag.tensor { 0.8 }, { rtol = 1e-5 }))
    assert.is_nil(c.grad)
    local before = b.grad:tolist()
    optim.clip_grad_norm({ a, b, c }, 10)
    assert.same(before, b.grad:tolist())
    assert.equal(0, optim.clip_grad_norm({ c }, 1))
  end)

  it("leaves gradients alone when the norm is not finite", function()
    for _, value in ipairs { math.huge, 0 / 0 } do
      local p = parameter { 2 }
      p.grad = ag.tensor { value, 1 }
      local norm = optim.clip_grad_norm({ p }, 1)
      assert.is_false(norm < math.huge)
      assert.equal(1, p.grad:get(2))
    end
  end)

  it("adds up half gradients whose norm is beyond their range, beside other dtypes", function()
    local p, q = ag.ones(4, { dtype = "f16", requires_grad = true }), parameter { 1 }
    p.grad, q.grad = ag.full({ 4 }, 40000, { dtype = "f16" }), ag.tensor { 60000 }
    assert.is_true(math.abs(optim.clip_grad_norm({ p, q }, 100) - 100000) < 100)
    assert.is_true(math.abs(p.grad:get(1) - 40) < 0.1)
    assert.is_true(math.abs(q.grad:get(1) - 60) < 0.1)
  end)
end)

describe("clip_grad_value", function()
  it("limits every element", function()
    local p = parameter { 3 }
    p.grad = ag.tensor { -5, 0.5, 5 }
    optim.clip_grad_value({ p, parameter { 1 } }, 1)
    assert.same({ -1, 0.5, 1 }, p.grad:tolist())
  end)

  it("refuses senseless arguments, as clip_grad_norm does", function()
    for _, name in ipairs { "clip_grad_norm", "clip_grad_value" } do
      local limit = name == "clip_grad_norm" and "max_norm" or "max_value"
      assert.equal(("%s: %s: expected a number >= 0, got -1"):format(name, limit),
        raised(function() optim[name]({ parameter { 1 } }, -1) end).message)
      assert.equal(name .. ": params: expected a list of tensors, got number",
        raised(function() optim[name](3, 1) end).message)
      assert.equal(name .. ": params: expected tensors, got a string at position 2",
        raised(function() optim[name]({ parameter { 1 }, "x" }, 1) end).message)
    end
  end)
end)
