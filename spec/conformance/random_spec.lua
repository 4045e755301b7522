-- Random ops: the same seed gives the same numbers on every device and for any number of threads; distributions have their
-- moments.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"

local floats = {"f64", "f32", "f16", "bf16"}
local shapes = {{1}, {3, 5}, {1001}, {100003}}

-- The last arguments of ops that take dtype and device from a tensor: none, or {generator = }.
local function own_generator(options) return unpack(options.generator and {{generator = options.generator}} or {}) end

-- Each makes random numbers of a shape; options: {dtype, device, generator}.
local makers = {
  rand = function(shape, options) return ag.rand(shape, options) end,
  randn = function(shape, options) return ag.randn(shape, options) end,
  bernoulli = function(shape, options)
    return ag.full(shape, 0.3, {dtype = options.dtype, device = options.device}):bernoulli(own_generator(options))
  end,
  rand_like = function(shape, options)
    return ag.zeros(shape, {dtype = options.dtype, device = options.device}):rand_like(own_generator(options))
  end,
  randn_like = function(shape, options)
    return ag.zeros(shape, {dtype = options.dtype, device = options.device}):randn_like(own_generator(options))
  end,
  dropout = function(shape, options)
    return ag.ones(shape, {dtype = options.dtype, device = options.device}):dropout(0.4, own_generator(options))
  end,
  randint = function(shape, options)
    return ag.randint(-3, 40, shape, {device = options.device, generator = options.generator})
  end,
  randperm = function(shape, options)
    return ag.randperm(shape[1], {device = options.device, generator = options.generator})
  end,
}

local function each_maker(fn)
  local check = cases.begin()
  for name, make in pairs(makers) do fn(check, name, make) end
  check.done()
end

local function seeded(make, shape, options)
  ag.manual_seed(11)
  return make(shape, options)
end

-- Mean and variance of all elements.
local function moments(t)
  t = t:to("f64")
  return t:mean():item(), t:var({correction = 0}):item()
end

describe("random numbers", function()
  it("are the same on every device", function()
    each_maker(function(check, name, make)
      for _, dtype in ipairs(floats) do
        for _, shape in ipairs(shapes) do
          check(("%s %s of %d"):format(name, dtype, shape[1]), function()
            local expected = seeded(make, shape, {dtype = dtype, device = "reference"})
            for _, device in ipairs(ag.devices()) do
              approx.check(seeded(make, shape, {dtype = dtype, device = device}):to("cpu"), expected:to("cpu"), {ulps = 4})
            end
          end)
        end
      end
    end)
  end)

  it("are the same bits for any number of threads", function()
    local before = ag.get_num_threads()
    each_maker(function(check, name, make)
      for _, shape in ipairs(shapes) do
        check(("%s of %d"):format(name, shape[1]), function()
          ag.set_num_threads(1)
          local one = seeded(make, shape, {dtype = "f32", device = "cpu"})
          ag.set_num_threads(2)
          approx.check_bitwise(seeded(make, shape, {dtype = "f32", device = "cpu"}), one)
        end)
      end
    end)
    ag.set_num_threads(before)
  end)

  it("repeat with the seed, differ from call to call, and follow a generator of one's own", function()
    each_maker(function(check, name, make)
      for _, device in ipairs(ag.devices()) do
        check(name .. " on " .. device, function()
          local options = {dtype = "f32", device = device}
          local first = seeded(make, {1001}, options)
          local second = make({1001}, options)
          assert(not first:equal(second), "two calls gave the same")
          approx.check_bitwise(seeded(make, {1001}, options), first)
          local own = {dtype = "f32", device = device, generator = ag.generator(3)}
          local a = make({1001}, own)
          assert(not make({1001}, own):equal(a), "the generator did not move on")
          own.generator = ag.generator(3)
          approx.check_bitwise(make({1001}, own), a)
          -- The default stream is not touched by one's own generator.
          ag.manual_seed(11)
          make({1001}, own)
          approx.check_bitwise(make({1001}, options), first)
        end)
      end
    end)
  end)

  it("have the range and the moments of their distribution", function()
    local check, n = cases.begin(), 200000
    for _, device in ipairs(ag.devices()) do
      for _, dtype in ipairs {"f64", "f32"} do
        local options = {dtype = dtype, device = device}
        ag.manual_seed(1)
        check("rand " .. dtype .. " on " .. device, function()
          local x = ag.rand(n, options)
          local mean, var = moments(x)
          assert(x:amin():item() >= 0 and x:amax():item() < 1)
          assert(math.abs(mean - 0.5) < 0.003 and math.abs(var - 1 / 12) < 0.001, mean .. " " .. var)
        end)
        check("randn " .. dtype .. " on " .. device, function()
          local x = ag.randn(n, options)
          local mean, var = moments(x)
          assert(math.abs(mean) < 0.01 and math.abs(var - 1) < 0.02, mean .. " " .. var)
          assert(math.abs((x * x * x):mean():item()) < 0.05 and math.abs((x * x * x * x):mean():item() - 3) < 0.15)
        end)
        check("bernoulli " .. dtype .. " on " .. device, function()
          local mean = moments(ag.full(n, 0.3, options):bernoulli())
          assert(math.abs(mean - 0.3) < 0.005, mean)
        end)
        check("dropout " .. dtype .. " on " .. device, function()
          local x = ag.ones(n, options):dropout(0.25)
          local mean = moments(x)
          assert(math.abs(mean - 1) < 0.01, mean)
          local values = x:unique():tolist()
          assert(#values == 2 and values[1] == 0 and math.abs(values[2] - 4 / 3) < 1e-6)
        end)
      end
      check("rand in half precision stays below 1 on " .. device, function()
        for _, dtype in ipairs {"f16", "bf16"} do
          local x = ag.rand(n, {dtype = dtype, device = device}):to("f32")
          assert(x:amin():item() >= 0 and x:amax():item() < 1, dtype .. " reaches " .. x:amax():item())
        end
      end)
      check("randint on " .. device, function()
        local x = ag.randint(-2, 3, {n}, {device = device})
        local values, _, counts = x:unique()
        assert.are.same({-2, -1, 0, 1, 2}, values:tolist())
        assert(counts:amin():item() > n / 5 * 0.97 and counts:amax():item() < n / 5 * 1.03)
      end)
      check("randperm on " .. device, function()
        local x = ag.randperm(1000, {device = device})
        assert(x:unique():numel() == 1000 and x:sum():item() == 500500)
        assert(x:eq(ag.arange(1, 1001, {dtype = "i64", device = device})):sum():item() < 20)
      end)
    end
    check.done()
  end)

  it("refuse probabilities and ranges that are none", function()
    local check = cases.begin()
    for _, device in ipairs(ag.devices()) do
      local x = ag.ones(3, {device = device})
      for name, fn in pairs {
        ["bernoulli of 1.5"] = function() return (x * 1.5):bernoulli() end,
        ["bernoulli of -1"] = function() return (-x):bernoulli() end,
        ["dropout p = 2"] = function() return x:dropout(2) end, ["dropout p = -1"] = function() return x:dropout(-1) end,
        ["randint of nothing"] = function() return ag.randint(3, 3, {2}, {device = device}) end,
        ["randperm of -1"] = function() return ag.randperm(-1, {device = device}) end,
      } do
        check(name .. " on " .. device, function()
          local ok, err = pcall(fn)
          assert(not ok and err.code == "value", tostring(err))
        end)
      end
    end
    check.done()
  end)

  it("of dropout reach the gradient: the mask of forward scales it", function()
    for _, device in ipairs(ag.devices()) do
      local x = ag.ones(1000, {device = device, requires_grad = true})
      local y = x:dropout(0.5)
      y:sum():backward()
      assert.is_true(x.grad:equal(y:detach()))
    end
    assert.is_true(core.op_info("dropout").differentiable)
  end)
end)
