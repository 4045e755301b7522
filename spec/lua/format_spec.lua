--- format: the exact text of tensors and of Lua values.
local ag = require "argand"
local core = require "argand.core"
local format = require "argand.format"
local cases = require "support.cases"

local nan, inf = 0 / 0, math.huge

-- The text without its last line, which says what the tensor is.
local function body(tensor, width)
  return (format.tensor(tensor, width or 80):gsub("\n[^\n]*$", ""))
end

local function lines(...)
  return table.concat({ ... }, "\n")
end

-- {data, text[, dtype]}
local tensors = {
  -- floats: common decimals, points below each other
  { 3.14159265, "3.1416" },
  { { 1, 2, 3 }, "[1., 2., 3.]" },
  { { -1, 10, 100 }, "[ -1.,  10., 100.]" },
  { { 0.5 }, "[0.5]" },
  { { 1 / 3, 2 / 3, 100.123456 }, "[  0.3333,   0.6667, 100.1235]" },
  { { 1 / 3, 0.5 }, "[0.3333, 0.5   ]", "f64" },
  { { 0.99999, 1 }, "[1., 1.]" },
  { { -0.0, 0 }, "[-0.,  0.]" },
  { { { 1.5, 2.25 }, { 3, 4 } }, "[[1.5 , 2.25],\n [3.  , 4.  ]]" },
  { { 1.5, -2.25 }, "[ 1.5 , -2.25]", "f16" },
  { { 1.5, 1024 }, "[   1.5, 1024. ]", "bf16" },
  { { 1, 1001 }, "[   1., 1001.]" },
  { { 1, 99999999 }, "[       1., 99999999.]", "f64" },
  -- scientific: 1e8 and above, below 1e-4, a ratio above 1000
  { { 1e8 }, "[1.e+08]" },
  { { 123456789 }, "[1.2346e+08]" },
  { { 1e-7 }, "[1.e-07]" },
  { { 1e-5, 1 }, "[1.e-05, 1.e+00]" },
  { { 0.0001, 0.01 }, "[0.0001, 0.01  ]", "f64" },
  { { 0.5, 500 }, "[  0.5, 500. ]" },
  { { 0.5, 500.5 }, "[5.000e-01, 5.005e+02]" },
  { { 0, 1e-9 }, "[0.e+00, 1.e-09]" },
  { { -1e300, 1.5 }, "[-1.0e+300,   1.5e+00]", "f64" },
  -- NaN and infinities do not count for the range
  { { nan, inf, -inf, 1.5 }, "[ nan,  inf, -inf,  1.5]" },
  { { nan, inf }, "[nan, inf]" },
  { { 1e10, 1.5, nan }, "[1.0e+10, 1.5e+00,     nan]" },
  { nan, "nan" },
  { -inf, "-inf" },
  -- whole numbers
  { { 1, -20, 300 }, "[  1, -20, 300]", "i32" },
  { 7, "7", "i64" },
  { { 2 ^ 53 }, "[9007199254740992]", "i64" },
  { { { 0 }, { 255 } }, "[[  0],\n [255]]", "u8" },
  { { 1, 1000000000 }, "[         1, 1000000000]", "i64" },
  -- bool
  { true, "true" },
  { { true, false }, "[ true, false]" },
}

describe("format.tensor", function()
  it("writes elements as numpy does", function()
    local check = cases.begin()
    for _, case in ipairs(tensors) do
      local data, expected, dtype = unpack(case)
      check(expected, function() assert.equal(expected, body(ag.tensor(data, { dtype = dtype }))) end)
    end
    check.done()
  end)

  it("writes empty tensors as []", function()
    for _, shape in ipairs { { 0 }, { 2, 0 }, { 0, 3 }, { 2, 0, 3 } } do
      assert.equal("[]", body(ag.zeros(shape)))
    end
  end)

  it("puts blank lines between matrices", function()
    assert.equal(lines(
      "[[[ 0,  1,  2,  3],",
      "  [ 4,  5,  6,  7],",
      "  [ 8,  9, 10, 11]],",
      "",
      " [[12, 13, 14, 15],",
      "  [16, 17, 18, 19],",
      "  [20, 21, 22, 23]]]"), body(ag.arange(0, 24, { dtype = "i32" }):reshape(2, 3, 4)))
    assert.equal(lines("[[[[0.]],", "", "  [[1.]]],", "", "", " [[[2.]],", "", "  [[3.]]]]"),
      body(ag.arange(0, 4):reshape(2, 2, 1, 1)))
  end)

  it("reads views by their positions", function()
    local x = ag.arange(0, 6, { dtype = "i64" }):reshape(2, 3)
    assert.equal("[[0, 3],\n [1, 4],\n [2, 5]]", body(x:transpose()))
    assert.equal("[[7, 7],\n [7, 7]]", body(ag.tensor({ { 7 } }, { dtype = "i8" }):expand(2, 2)))
  end)

  it("shows three items at each edge above a thousand elements", function()
    local whole = body(ag.arange(0, 1000))
    assert.is_nil(whole:find("...", 1, true))
    assert.equal("[   0.,    1.,    2., ...,  998.,  999., 1000.]", body(ag.arange(0, 1001)))
    assert.equal(lines(
      "[[0., 0., 0., ..., 0., 0., 0.],",
      " [0., 0., 0., ..., 0., 0., 0.],",
      " [0., 0., 0., ..., 0., 0., 0.],",
      " ...,",
      " [0., 0., 0., ..., 0., 0., 0.],",
      " [0., 0., 0., ..., 0., 0., 0.],",
      " [0., 0., 0., ..., 0., 0., 0.]]"), body(ag.zeros(100, 100)))
    assert.equal(lines("[[ 0,  1],", " [ 2,  3],", " [ 4,  5],", " ...,", " [-6, -5],", " [-4, -3],", " [-2, -1]]"),
      body(ag.cat { ag.arange(0, 2000, { dtype = "i64" }), ag.arange(-6, 0, { dtype = "i64" }) }:reshape(-1, 2)))
  end)

  it("judges the range by the elements that are shown", function()
    local x = ag.ones(2000)
    x:set(1000, 1e-9)
    assert.equal("[1., 1., 1., ..., 1., 1., 1.]", body(x))
  end)

  it("breaks rows at the width", function()
    assert.equal(lines(
      "[ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,",
      "  8.,  9., 10., 11., 12., 13., 14., 15.,",
      " 16., 17., 18., 19.]"), body(ag.arange(0, 20), 40))
    assert.equal("[0,\n 1,\n 2]", body(ag.arange(0, 3, { dtype = "i64" }), 1))
    assert.equal("[[0, 1,\n  2]]", body(ag.arange(0, 3, { dtype = "i64" }):reshape(1, 3), 8))
    assert.equal("[[0, 1,\n  2]]", body(ag.arange(0, 3, { dtype = "i64" }):reshape(1, 3), 10)) -- room for "]]"
    assert.equal("[[0, 1, 2]]", body(ag.arange(0, 3, { dtype = "i64" }):reshape(1, 3), 11))
    for line in body(ag.arange(0, 500), 40):gmatch "[^\n]+" do assert.is_true(#line <= 40) end
  end)

  it("ends with dtype, shape, device and where it stands in autodiff", function()
    local x = ag.ones(2, 3, { requires_grad = true })
    local function footer(tensor) return format.tensor(tensor, 80):match "([^\n]*)$" end
    assert.equal("f32[2, 3] cpu", footer(ag.zeros(2, 3)))
    assert.equal("f32[2, 3] cpu, requires_grad", footer(x))
    assert.equal("f32[2, 2] cpu, grad: matmul", footer(x:matmul(x:transpose())))
    assert.equal("f64[2, 3] cpu, grad: cast", footer(x:to "f64"))
    assert.equal("f32[2, 3] cpu", footer(x:detach()))
    local Double = ag.Function { name = "double", forward = function(_, v) return v * 2 end,
      backward = function(_, g) return g * 2 end }
    assert.equal("f32[2, 3] cpu, grad: double", footer(Double(x)))
    assert.equal("i64[] cpu", footer(ag.tensor(3, { dtype = "i64" })))
    assert.equal("matmul", x:matmul(x:transpose()).grad_op)
    assert.is_nil(x.grad_op)
    assert.is_nil(x:detach().grad_op)
  end)

  it("is what tostring and print show", function()
    local x = ag.tensor { 1, 2 }
    assert.equal(format.tensor(x), tostring(x))
    assert.equal("f32[2]", format.summary(x))
  end)

  it("reads no more than is shown, however large the tensor is", function()
    local huge = ag.zeros(1, 1):expand(2 ^ 17, 2 ^ 16)
    local many = ag.zeros(1):reshape(1, 1, 1, 1, 1, 1, 1, 1):expand(9, 9, 9, 9, 9, 9, 9, 9)
    local count, read = 0, core.read_element
    core.read_element = function(...)
      count = count + 1
      return read(...)
    end
    local ok, first, second = pcall(function()
      local text = body(huge)
      local reads = count
      count = 0
      return { text, reads }, { body(many), count }
    end)
    core.read_element = read
    assert.is_true(ok, first)
    assert.equal(36, first[2])
    assert.equal(6, select(2, first[1]:gsub("%[0%., 0%., 0%., %.%.%., 0%., 0%., 0%.%]", "")))
    assert.is_true(second[2] <= 216)
    assert.is_true(#second[1] < 10000)
  end)
end)

describe("format.value", function()
  local values = {
    { nil, "nil" },
    { 12, "12" },
    { 0.1, "0.1" },
    { true, "true" },
    { "a\nb\"c", '"a\\nb\\"c"' },
    { "\0\1\27[31m\127\r", '"\\0\\1\\27[31m\\127\\13"' },
    { {}, "{}" },
    { { 1, 2, 3 }, "{ 1, 2, 3 }" },
    { { b = 1, a = 2, 10 }, "{ 10, a = 2, b = 1 }" },
    { { ["end"] = 1, ["a b"] = 2, [5] = 3, [true] = 4 }, '{ [5] = 3, ["a b"] = 2, ["end"] = 1, [true] = 4 }' },
    { { { {} } }, "{ { {} } }" },
    { { { { { { 1 } } } } }, "{ { { { { ... } } } } }" },
  }

  it("writes Lua values with sorted keys", function()
    local check = cases.begin()
    for position, case in ipairs(values) do
      check(position, function() assert.equal(case[2], format.value(case[1])) end)
    end
    check.done()
  end)

  it("shows tensors inside tables as one word, cycles as such, and limits the count", function()
    local loop = {}
    loop.self = loop
    assert.equal("{ self = <cycle> }", format.value(loop))
    assert.equal("{ w = f32[2, 2] }", format.value { w = ag.zeros(2, 2) })
    local many = {}
    for i = 1, 100 do many[i] = i end
    local text = format.value(many)
    assert.is_truthy(text:find("... 70 more", 1, true))
    assert.is_nil(text:find("31", 1, true))
    assert.is_truthy(format.value(("x"):rep(5000)):find('" ... (5000 bytes)', 1, true))
  end)

  it("uses __tostring", function()
    assert.equal("{ hello }", format.value { setmetatable({}, { __tostring = function() return "hello" end }) })
  end)
end)
