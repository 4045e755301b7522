--- cases: what `argand bench` times. The peer script has the same cases under the same names.
--
-- make() prepares a case and returns run(n), which does it n times. `flops` and `bytes` are what one run has to do at least:
-- each operand read once, each result written once. `bar` is the time allowed over PyTorch 1.13's. `place` tells which
-- bandwidth limits the case: "cache" (its operands fit the last-level cache) or "memory".
local ag = require "argand"

local MI = 2 ^ 20

local function repeated(fn)
  return function(n)
    for _ = 1, n do fn() end
  end
end

local function elementwise(name, method)
  return { name = name, bytes = 8 * MI, place = "cache", bar = 1, make = function()
    local x = ag.randn(1024, 1024)
    local call = x[method]
    return repeated(function() return call(x) end)
  end }
end

local function product(m, n, k)
  return { name = ("matmul %dx%dx%d"):format(m, n, k), flops = 2 * m * n * k, bar = m >= 1024 and 1.05 or 1,
    make = function()
      local a, b = ag.randn(m, k), ag.randn(k, n)
      return repeated(function() return a:matmul(b) end)
    end }
end

local function chain()
  local x, w = ag.full({ 1 }, 0.5, { requires_grad = true }), ag.full({ 1 }, 0.9)
  return repeated(function()
    local y = x
    for _ = 1, 10 do y = y * w + w end
    y:backward()
    x.grad = nil
  end)
end

local function fresh_outputs()
  local p, q = ag.randn(MI), ag.randn(MI)
  return repeated(function() return p * q + p - q * 0.5 end)
end

local function cross_entropy()
  local logits = ag.randn(256, 50257, { requires_grad = true })
  local labels = ag.randint(1, 50258, { 256 })
  return repeated(function()
    logits:cross_entropy(labels):backward()
    logits.grad = nil
  end)
end

local function adamw(count, size)
  return function()
    local params = {}
    for i = 1, count do
      params[i] = ag.randn(size, { requires_grad = true })
      params[i].grad = ag.randn(size)
    end
    local optimizer = ag.optim.AdamW(params, { lr = 1e-4 })
    return repeated(function() optimizer:step() end)
  end
end

local function mlp_step()
  local nn = ag.nn
  local model = nn.Sequential(nn.Linear(784, 128, { activation = "relu" }), nn.Linear(128, 10))
  local optimizer = ag.optim.Adam(model:parameters(), { lr = 1e-3 })
  local x, labels = ag.randn(64, 784), ag.randint(1, 11, { 64 })
  return repeated(function()
    optimizer:zero_grad()
    model(x):cross_entropy(labels):backward()
    optimizer:step()
  end)
end

local function layer_norm()
  local x, weight, bias = ag.randn(1024, 1024), ag.ones(1024), ag.zeros(1024)
  return repeated(function() return x:layer_norm({ 1024 }, weight, bias) end)
end

local function sum_columns()
  local x = ag.randn(1024, 1024)
  return repeated(function() return x:sum(1) end)
end

local function add_one()
  local a, b = ag.ones(1), ag.ones(1)
  return function(n)
    local c
    for _ = 1, n do c = a + b end
    return c
  end
end

return {
  { name = "add, 1 element", bar = 0.25, make = add_one },
  { name = "chain of 20, 1 element, with backward", bar = 0.15, make = chain },
  { name = "p*q + p - q*0.5, 1 Mi", bytes = 12 * MI, place = "cache", bar = 0.35, make = fresh_outputs },
  elementwise("exp, 1 Mi", "exp"),
  elementwise("tanh, 1 Mi", "tanh"),
  elementwise("gelu, 1 Mi", "gelu"),
  { name = "sum, 1 Mi", bytes = 4 * MI, place = "cache", bar = 1, make = elementwise("", "sum").make },
  { name = "sum over dim 1, 1024x1024", bytes = 4 * MI, place = "cache", bar = 1, make = sum_columns },
  elementwise("softmax, 1024x1024", "softmax"),
  { name = "layer norm, 1024x1024", bytes = 8 * MI, place = "cache", bar = 1, make = layer_norm },
  product(64, 64, 64),
  product(128, 128, 128),
  product(256, 256, 256),
  product(512, 512, 512),
  product(1024, 1024, 1024),
  product(2048, 2048, 2048),
  product(64, 128, 784),
  { name = "cross entropy, 256x50257, with backward", bytes = 3 * 4 * 256 * 50257, place = "memory", bar = 0.2,
    make = cross_entropy },
  { name = "AdamW, 10 M parameters", bytes = 7 * 4 * 1e7, place = "memory", bar = 0.5, make = adamw(1, 1e7) },
  { name = "AdamW, 100 x 100 parameters", bytes = 7 * 4 * 1e4, place = "cache", bar = 0.05, make = adamw(100, 100) },
  { name = "MLP 784-128-10, batch 64, Adam step", flops = 2 * 64 * (2 * 784 * 128 + 3 * 128 * 10), bar = 0.5,
    make = mlp_step },
}
