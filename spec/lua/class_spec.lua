--- class: instances, inheritance, metamethods and the length of objects.
local class = require "argand.class"

describe("class", function()
  local Animal = class "Animal"
  function Animal:init(name) self.name = name end
  function Animal:speak() return self.name .. " makes a sound" end
  function Animal.__add(a, b) return a.name .. "+" .. b.name end

  local Dog = class("Dog", Animal)
  function Dog:speak() return Animal.speak(self) .. ": woof" end

  it("makes instances and inherits methods and metamethods", function()
    local dog = Dog "Rex"
    assert.equal("Rex makes a sound: woof", dog:speak())
    assert.equal("Rex+Tom", dog + Animal "Tom")
    assert.equal("Animal", tostring(Animal "x"))
    assert.equal("class Dog", tostring(Dog))
    assert.is_nil(dog.missing)
  end)

  it("tells the class of an instance", function()
    local dog = Dog "Rex"
    assert.equal(Dog, class.of(dog))
    assert.is_true(class.is_a(dog, Dog))
    assert.is_true(class.is_a(dog, Animal))
    assert.is_false(class.is_a(Animal "x", Dog))
    for _, value in ipairs { 1, "text", {}, Dog, setmetatable({}, {}) } do
      assert.is_nil(class.of(value))
      assert.is_false(class.is_a(value, Animal))
    end
    assert.is_nil(class.of(nil))
  end)

  it("gives objects a length, also below the class that defines it", function()
    local List = class "List"
    function List:init(...) self.items = { ... } end
    function List:__len() return #self.items end
    function List:__tostring() return "list of " .. #self end
    function List:__call(position) return self.items[position] end
    local Stack = class("Stack", List)
    function Stack:push(value) self.items[#self.items + 1] = value end
    local stack = Stack(5, 6)
    stack:push(7)
    stack.label = "mine"
    assert.equal(3, #stack)
    assert.equal("list of 3", tostring(stack))
    assert.equal(7, stack(3))
    assert.equal("mine", stack.label)
    assert.equal(Stack, class.of(stack))
    assert.is_true(class.is_a(stack, List))
  end)

  it("passes on an __index that computes fields", function()
    local Square = class "Square"
    function Square.__index(self, key)
      if key == "area" then return rawget(self, "side") ^ 2 end
      return getmetatable(self)[key]
    end
    function Square:init(side) self.side = side end
    function Square:double() return 2 * self.area end
    local Tile = class("Tile", Square)
    function Tile:triple() return 3 * self.area end
    local tile = Tile(3)
    assert.equal(9, tile.area)
    assert.equal(18, tile:double())
    assert.equal(27, tile:triple())
  end)
end)
