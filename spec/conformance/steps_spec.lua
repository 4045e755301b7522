-- The optimizer steps, which no method shows: the fused kernels of cpu against their decompositions on the reference device.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local cases = require "support.cases"

local shapes = {{3, 5}, {}, {0}, {1009}}

-- `kinds` lists of tensors, one after the other, as the steps take them; values of the last kind are >= 0.
local function tensors(kinds, dtype, device)
  ag.manual_seed(2)
  local list = {}
  for kind = 1, kinds do
    for _, shape in ipairs(shapes) do
      local t = ag.randn(shape, {dtype = "f64"})
      if kind == kinds then t = t:square() end
      list[#list + 1] = t:to(dtype):to(device)
    end
  end
  return list
end

-- name, kinds of tensors, arguments after the list
local steps = {
  {"sgd_step", 2, {0.1}}, {"sgd_step", 2, {0.1, 0, 0, 0.01}}, {"sgd_step", 3, {0.1, 0.9, 0, 0.01, false, true}},
  {"sgd_step", 3, {0.1, 0.9, 0.2, 0, false, false}}, {"sgd_step", 3, {0.1, 0.9, 0, 0.01, true, false}},
  {"adam_step", 4, {0.01, 0.9, 0.999, 1e-8, 0, false, 1}}, {"adam_step", 4, {0.01, 0.9, 0.99, 1e-6, 0.1, false, 7}},
  {"adam_step", 4, {0.01, 0.9, 0.999, 1e-8, 0.1, true, 100}},
}

local function check_step(step, dtype)
  local name, kinds, arguments = unpack(step)
  local kernels, composed = tensors(kinds, dtype, "cpu"), tensors(kinds, dtype, "reference")
  local before = kernels[1]:clone()
  core.call(name, kernels, unpack(arguments))
  core.call(name, composed, unpack(arguments))
  assert(not kernels[1]:equal(before), "nothing changed")
  for i, t in ipairs(kernels) do approx.check(t, composed[i]:to("cpu"), {ulps = 4}) end
end

describe("optimizer step", function()
  it("by kernel is that by ops, in every float dtype", function()
    local check = cases.begin()
    for _, dtype in ipairs {"f64", "f32", "f16", "bf16"} do
      for i, step in ipairs(steps) do check(("%s %d %s"):format(step[1], i, dtype), check_step, step, dtype) end
    end
    check.done()
  end)

  it("of one number is what the formula says", function()
    for _, device in ipairs(ag.devices()) do
      local function one(v) return ag.tensor({v}, {dtype = "f64"}):to(device) end
      local p, g, m, v = one(1), one(2), one(0), one(0)
      core.call("adam_step", {p, g, m, v}, 0.1, 0.9, 0.999, 0, 0, false, 1)
      assert.is_near(0.9, p:item(), 1e-12) -- the first step is lr * sign(g)
      assert.is_near(0.2, m:item(), 1e-12)
      assert.is_near(0.004, v:item(), 1e-12)
      p, g, m = one(1), one(2), one(3)
      core.call("sgd_step", {p, g, m}, 0.1, 0.5, 0, 0, false, false)
      assert.is_near(3.5, m:item(), 1e-12)
      assert.is_near(0.65, p:item(), 1e-12)
    end
  end)

  it("refuses tensors that are not floats", function()
    for _, device in ipairs(ag.devices()) do
      local t = ag.ones(2, {dtype = "i32", device = device})
      local ok, err = pcall(core.call, "sgd_step", {t, t:clone()}, 0.1)
      assert.is_false(ok)
      assert.are.equal("kind", err.code)
    end
  end)
end)
